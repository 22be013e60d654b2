//! The measured packages: their manifests and their functions.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// A way to write the same functions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `#[idempotent]`.
    Attribute,
    /// `Operation::run`.
    ByHand,
    /// `#[cached]`.
    Cached,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Attribute, Self::ByHand, Self::Cached];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Attribute => "attribute",
            Self::ByHand => "by_hand",
            Self::Cached => "cached",
        }
    }

    fn dependencies(self, root: &Path) -> String {
        let tokio = "tokio = { version = \"1\", features = [\"rt\", \"time\"] }\n";
        match self {
            Self::Attribute | Self::ByHand => {
                format!(
                    "{tokio}idem = {{ package = \"idem-rs\", path = {:?}, default-features = false, features = [\"macros\"] }}\n",
                    root
                )
            }
            Self::Cached => format!("{tokio}cached = {{ version = \"0.56\", features = [\"async\"] }}\n"),
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Attribute => "use idem::{Error, MemoryStore, idempotent};\n",
            Self::ByHand => "use idem::{Error, MemoryStore, Operation};\n",
            Self::Cached => {
                "use std::time::Duration;\n\nuse cached::proc_macro::cached;\n\ntype Error = String;\n"
            }
        }
    }

    fn function(self, number: usize) -> String {
        let body = "    let amount = step(id).await?;\n    Ok(amount + 1)\n";
        match self {
            Self::Attribute => format!(
                "#[idempotent(key = \"order/{{id}}\", ttl = \"1h\", store = store)]\n\
                 async fn f{number}(store: &MemoryStore, id: u64) -> Result<u64, Error> {{\n{body}}}\n"
            ),
            Self::ByHand => format!(
                "async fn f{number}(store: &MemoryStore, id: u64) -> Result<u64, Error> {{\n    \
                 let operation = Operation::new(\"f{number}\").ttl(std::time::Duration::from_secs(3_600));\n    \
                 operation.run(store, (\"order\", id), || async move {{\n{body}    }}).await\n}}\n"
            ),
            Self::Cached => format!(
                "#[cached(time = 3_600, result = true)]\n\
                 async fn f{number}(id: u64) -> Result<u64, Error> {{\n{body}}}\n"
            ),
        }
    }

    fn call(self, number: usize) -> String {
        match self {
            Self::Attribute | Self::ByHand => format!("f{number}(&store, 1)"),
            Self::Cached => format!("f{number}(1)"),
        }
    }

    fn store(self) -> &'static str {
        match self {
            Self::Attribute | Self::ByHand => "    let store = MemoryStore::new();\n",
            Self::Cached => "",
        }
    }
}

/// The step that every function awaits. Its future holds a kilobyte.
const STEP: &str = "
async fn step(id: u64) -> Result<u64, Error> {
    let held = [id; 128];
    tokio::task::yield_now().await;
    Ok(held[127])
}
";

/// Writes the package with this number of functions.
pub(crate) fn write(form: Form, package: &Path, root: &Path, functions: usize) -> io::Result<()> {
    fs::create_dir_all(package.join("src"))?;
    let manifest = format!(
        "[package]\nname = \"cost-{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{}",
        form.name().replace('_', "-"),
        form.dependencies(root),
    );
    fs::write(package.join("Cargo.toml"), manifest)?;
    let mut code = format!("#![allow(dead_code, unused)]\n{}{STEP}\n", form.header());
    let mut calls = String::new();
    for number in 0..functions {
        code.push_str(&form.function(number));
        let _ = writeln!(calls, "    drop(runtime.block_on({}));", form.call(number));
    }
    let size = if functions == 0 { "step(1)".to_owned() } else { form.call(0) };
    let _ = write!(
        code,
        "\nfn main() {{\n{}    \
         println!(\"{{}} ({{}})\", size_of_val(&{size}), size_of_val(&step(1)));\n    \
         let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();\n{calls}}}\n",
        form.store(),
    );
    fs::write(package.join("src/main.rs"), code)
}

/// Makes cargo build the package again, and nothing else.
pub(crate) fn touch(package: &Path) -> io::Result<()> {
    let path = package.join("src/main.rs");
    let code = fs::read_to_string(&path)?;
    fs::write(path, code)
}
