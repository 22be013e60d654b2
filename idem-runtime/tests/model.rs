//! placeholder
mod support;
use support::model::Bounded;
use support::protocol::OnCrash::*;
use support::rules::Shipped;
use support::setup::Setup;
#[test]
fn probe() {
    let n: usize = std::env::var("N").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    for (i, setup) in [
        Setup { lives: 1, ..Setup::new("2w rerun, 1 life", &[Rerun, Rerun]) },
        Setup { lives: 1, end: 4, ..Setup::new("2w in doubt 1 life", &[InDoubt, InDoubt]) },
        Setup { lives: 2, end: 7, ..Setup::new("2w rerun 2 lives", &[Rerun, Rerun]) },
        Setup {
            lives: 1,
            late: 1,
            other_arguments: true,
            forgets: 1,
            end: 4,
            ..Setup::new("2w rerun, 1 life, late, args, forget", &[Rerun, Rerun])
        },
        Setup { late: 1, end: 4, ..Setup::new("2w rerun, 2 life, late, ", &[Rerun, Rerun]) },
        Setup { lives: 1, end: 5, ..Setup::new("3w rerun, 1 life", &[Rerun, Rerun, Rerun]) },
        Setup { end: 4, ..Setup::wide(Rerun) },
        Setup { lives: 1, ..Setup::wide(InDoubt) },
        Setup::wide(Rerun),
    ]
    .into_iter()
    .enumerate()
    {
        if i < n {
            println!("{}", Bounded::<Shipped>::new(setup).explore(2));
        }
    }
}
