//! Empty, because this package consists of tests only.
