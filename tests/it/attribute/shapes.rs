//! Functions that come out of a macro. Other shapes are in `tests/ui/pass`, and those beside the attributes
//! of other crates in `tests/attributes`.

use idem::idempotent;

use super::{App, Run, ran};

macro_rules! guarded {
    ($name:ident, $argument:ident, $key:literal, $template:expr) => {
        #[idempotent(key = $key, store = app.store)]
        async fn $name(app: &App, $argument: u8, other: u8) -> Run {
            app.run()
        }

        mod from_expression {
            use super::*;

            #[idempotent(key = $template, store = app.store, crate = ::idem)]
            pub(super) async fn $name(app: &App, $argument: u8, other: u8) -> Run {
                let _ = other;
                app.run()
            }
        }
    };
    ($name:ident by $argument:ident) => {
        #[idempotent(key = "{own}/{x}", store = app.store)]
        async fn $name(app: &App, own: u8, $argument: u8) -> Run {
            app.run()
        }
    };
}

guarded!(from_a_macro, mine, "{mine}/{other}", "{mine}:{other}");
guarded!(with_own_names by x);

#[tokio::test]
async fn a_function_may_come_out_of_a_macro() {
    let app = App::default();
    assert_eq!(ran(from_a_macro(&app, 1, 2).await).1, "1/2");
    assert_eq!(ran(from_expression::from_a_macro(&app, 1, 2).await).1, "1:2");
    assert_eq!(ran(with_own_names(&app, 1, 2).await).1, "1/2");
}
