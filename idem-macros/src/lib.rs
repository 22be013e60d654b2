//! The attribute and the derive of `idem`: entry points only.
