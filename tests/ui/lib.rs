//! Nothing: the cases are the package. See `compile_time.rs`.
