//! Empty: the package consists of its cases. See `compile_time.rs`.
