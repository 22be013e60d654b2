//! `BucketStore` and `FolderStore` against the conformance kit: two stores on the same objects.

use std::sync::Arc;
use std::time::Duration;

use idem_object::{BucketStore, FolderStore};
use idem_testing::conformance::{Profile, Subject};
use object_store::ObjectStore;
use object_store::memory::InMemory;

async fn open(objects: &Arc<dyn ObjectStore>) -> BucketStore {
    // Both stores are on one machine, with one clock. The emulator takes seconds for hundreds of objects on a busy machine.
    let builder = BucketStore::builder(objects.clone(), "records").clock_skew(Duration::ZERO);
    builder.operation_timeout(Duration::from_secs(120)).connect().await.unwrap()
}

mod in_a_folder {
    use super::*;

    async fn subject() -> Subject {
        let folder = tempfile::tempdir().unwrap();
        let open = || FolderStore::open(folder.path()).unwrap();
        Subject::new(open(), Profile::real_clock().short(Duration::from_millis(150)))
            .handle(open())
            .keep(folder)
    }

    idem_testing::conformance_suite!(subject);
}

mod in_memory {
    use super::*;

    async fn subject() -> Subject {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        Subject::new(open(&objects).await, Profile::real_clock()).handle(open(&objects).await)
    }

    idem_testing::conformance_suite!(subject);
}

mod on_s3 {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use idem_test_servers::Aws;
    use idem_testing::conformance;

    use super::*;
    use crate::objects::s3;

    /// Runs the checks of these themes, each in its own bucket.
    fn run(themes: &[&str]) {
        let aws = Arc::new(Aws::start());
        let buckets = Arc::new(AtomicUsize::new(0));
        let mut broken = Vec::new();
        let mut checks = 0;
        for check in conformance::all().iter().filter(|check| themes.contains(&check.theme())) {
            let (aws, buckets) = (aws.clone(), buckets.clone());
            checks += 1;
            let judged = check.run(|| async move {
                let objects = s3(&aws, &format!("bucket-{}", buckets.fetch_add(1, Ordering::Relaxed)));
                let profile = Profile::real_clock().short(Duration::from_millis(300));
                Subject::new(open(&objects).await, profile).handle(open(&objects).await)
            });
            broken.extend(judged.err());
        }
        println!("{checks} checks of {themes:?}");
        assert!(checks > 0, "there is no such theme");
        assert!(broken.is_empty(), "{broken:#?}");
    }

    #[test]
    fn every_theme_is_in_a_test() {
        let mut themes: Vec<&str> = conformance::all().iter().map(|check| check.theme()).collect();
        themes.dedup();
        assert_eq!(themes, THEMES);
    }

    macro_rules! themes {
        ($($theme:ident)*) => {
            const THEMES: &[&str] = &[$(stringify!($theme)),*];
            $(#[test] fn $theme() { run(&[stringify!($theme)]); })*
        };
    }

    themes! {
        claim crash attempts replay fingerprints renew complete release steps doubt resolve fences expiry purge records
        results formats keys races duels listing lost outage
    }
}
