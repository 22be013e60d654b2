//! `BucketStore` and `FolderStore` against the conformance kit: two stores on the same objects.

use std::time::Duration;

use idem_testing::conformance::{Profile, Subject};

mod in_a_folder {
    use idem_object::FolderStore;

    use super::*;

    async fn subject() -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let open = || FolderStore::open(folder.path()).unwrap();
        // Every write waits for the disk. So the kit's short lease is longer than by default, and only a
        // sample of its cases runs.
        Subject::new(open(), Profile::real_clock().short(Duration::from_millis(150)).sample(5))
            .handle(open())
            .keep(folder)
    }

    idem_testing::conformance_suite!(subject);
}

mod on_s3 {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use idem_object::BucketStore;
    use idem_test_servers::{Aws, bucket};

    use super::*;

    async fn subject(aws: Arc<Aws>, buckets: Arc<AtomicUsize>) -> Subject {
        let objects = bucket(&aws, &format!("bucket-{}", buckets.fetch_add(1, Ordering::Relaxed)));
        // Both stores are on one machine, with one clock. The timeout is long, because on a busy machine the
        // emulator takes seconds for hundreds of objects.
        let open = async || {
            let builder = BucketStore::builder(objects.clone(), "records").clock_skew(Duration::ZERO);
            builder.operation_timeout(Duration::from_secs(120)).connect().await.unwrap()
        };
        Subject::new(open().await, Profile::real_clock().short(Duration::from_millis(300)).sample(40))
            .handle(open().await)
    }

    idem_testing::conformance_suite!({
        let (aws, buckets) = (Arc::new(Aws::start()), Arc::default());
        move || subject(Arc::clone(&aws), Arc::clone(&buckets))
    });
}
