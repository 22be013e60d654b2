//! Tests of the catalogue of annotated functions: its contents, and the effect of each change on records.

use idem::{Catalogue, Error, KeyPart, MemoryStore, catalogue, idempotent};
use idem_testing::{assert_catalogue_of, differences};

/// Every kind of function. `attribute_scope` and `idem-runtime/src/engine/prepare/scope.rs` test that the
/// listed scopes are the scopes of the records.
#[allow(dead_code, reason = "they are in the catalogue whether they are called or not")]
mod shapes {
    use super::*;

    pub(crate) struct Order {
        pub(crate) id: u64,
        pub(crate) store: MemoryStore,
    }

    pub(crate) struct Wrapped<T>(pub(crate) T, pub(crate) MemoryStore);

    #[derive(KeyPart)]
    pub(crate) enum Place {
        Shop(u16),
        #[key_part(rename = "w")]
        Web {
            host: String,
        },
        Unknown,
    }

    #[idempotent(key = (place, order.id + 1), fingerprint = (order.id, "x"), ttl = 2 * super::TTL, lease = "1m", on_crash = "in_doubt", store = order.store)]
    pub(crate) async fn free(order: &Order, place: Place) -> Result<Vec<u8>, Error> {
        Ok(vec![])
    }

    impl Order {
        #[idempotent(key = "{ self.id }/{{x}}/{line}", key_fn = method_key, store = self.store)]
        pub(crate) async fn method(&self, line: u8) -> Result<u8, Error> {
            Ok(line)
        }

        #[idempotent(key = "{id}", store = store)]
        pub(crate) async fn associated(store: &MemoryStore, id: u8) -> Result<u8, Error> {
            Ok(id)
        }
    }

    impl<T: Sync> Wrapped<T> {
        #[idempotent(key = "{id}", store = self.1)]
        pub(crate) async fn unnamed(&self, id: u8) -> Result<u8, Error> {
            Ok(id)
        }
    }

    #[idempotent(key = "{id}", scope = "generic", store = store)]
    pub(crate) async fn generic<K: KeyPart, const N: usize>(
        store: &MemoryStore,
        id: K,
    ) -> Result<[u8; 2], Error> {
        Ok([0; 2])
    }

    pub(crate) fn outer() {
        #[idempotent(key = "{id}", store = store)]
        async fn inner(store: &MemoryStore, id: u8) -> Result<u8, Error> {
            Ok(id)
        }
        let _ = inner;
    }
}

const TTL: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn every_annotated_function_is_in_it_whether_or_not_it_is_called() {
    shapes::outer();
    let shapes = catalogue().within("it::catalogue::shapes");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue/shapes.catalogue");
    if std::env::var_os("IDEM_UPDATE").is_some() {
        std::fs::write(file, shapes.to_string()).unwrap();
    }
    assert_eq!(shapes.to_string(), std::fs::read_to_string(file).unwrap());
}

#[test]
fn what_has_no_scope_in_it_is_refused() {
    let words = panic_of(|| assert_catalogue_of(&catalogue().within("it::catalogue::shapes"), "nowhere"));
    assert!(words.contains("Wrapped::unnamed: each call is refused"), "{words}");
    assert!(words.contains("Order::associated: each call is refused"), "{words}");
}

/// The catalogue of one module of `catalogue_changes`. Replaces the module's name by `shop`, so that the
/// catalogues of two modules can be compared.
fn changed(module: &str) -> Catalogue {
    let module = format!("it::catalogue_changes::{module}");
    let text = catalogue().within(&module).to_string();
    Catalogue::parse(&text.replace(&format!("{module}::"), "shop::")).unwrap()
}

/// Makes each change of a function or type alone, and compares the reported effect on records with the
/// expected one.
#[test]
fn every_change_is_said_with_what_it_does_to_records() {
    let before = changed("before");
    assert_eq!(differences(&before, &changed("same")), Vec::<String>::new());
    for case in include_str!("catalogue/changes.txt").lines() {
        let (module, expected) = case.split_once(": ").unwrap();
        assert_eq!(differences(&before, &changed(module)), [expected], "{module}");
    }
}

#[test]
fn two_operations_with_one_scope_and_different_keys_are_refused() {
    let clash = catalogue().within("it::catalogue_changes::clash");
    let words = panic_of(|| assert_catalogue_of(&clash, "nowhere"));
    assert!(
        words.contains("two operations have this scope, it::catalogue_changes::clash::charge and"),
        "{words}"
    );
    assert!(
        words.contains("with different keys, `{id}` and `x/{id}`: each answers calls of the other"),
        "{words}"
    );
}

#[test]
fn a_file_that_differs_is_said_with_how_to_write_it_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idem.catalogue");
    let before = changed("before");
    let words = panic_of(|| assert_catalogue_of(&before, &file));
    assert!(words.contains("cannot read") && words.contains("IDEM_UPDATE=1"), "{words}");
    std::fs::write(&file, before.to_string()).unwrap();
    assert_catalogue_of(&before, &file);
    let words = panic_of(|| assert_catalogue_of(&changed("renamed_field"), &file));
    assert!(words.contains("* payments.charge: the key was") && words.contains("IDEM_UPDATE=1"), "{words}");
}

fn panic_of(run: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(run).expect_err("nothing was refused");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}
