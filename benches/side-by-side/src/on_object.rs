//! The arms on an emulator of S3: this library, and code by hand. By hand, a fresh call has two puts: one
//! creates the object, and a conditional put replaces it. A replay is a get. The speed of the emulator says
//! nothing about the real service. Only the ratios between the arms do.

use std::sync::Arc;
use std::time::Duration;

use idem::BucketStore;
use idem_test_servers::{Aws, bucket};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, UpdateVersion};

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

async fn pay(objects: Arc<dyn ObjectStore>, key: String) -> Anything<()> {
    let path = Path::from(format!("by-hand/{key}"));
    let created = objects.put_opts(&path, "in flight".into(), PutMode::Create.into()).await?;
    let version = UpdateVersion { e_tag: created.e_tag, version: created.version };
    objects.put_opts(&path, RECEIPT.into(), PutMode::Update(version).into()).await?;
    Ok(())
}

async fn look(objects: Arc<dyn ObjectStore>, key: String) -> Anything<()> {
    let receipt = objects.get(&Path::from(format!("by-hand/{key}"))).await?.bytes().await?;
    right(receipt == RECEIPT)
}

async fn arms(objects: Arc<dyn ObjectStore>) -> Anything<Vec<Arm>> {
    let hand = Arm::new("two puts, a get", &objects, pay, look);
    // Everything runs on one machine with one clock.
    let store = BucketStore::builder(objects, "idem").clock_skew(Duration::ZERO).connect().await?;
    Ok(beside(hand, &store))
}

pub(crate) fn contest() -> Anything<Contest> {
    let emulator = Aws::start();
    let objects = bucket(&emulator, "side-by-side");
    let url = emulator.url();
    Ok(Contest::new("object store (emulator of S3)", url, None, emulator, move |_| arms(objects.clone())))
}
