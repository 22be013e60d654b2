//! Checks the options of a layer, and builds it.

use super::Builder;
use crate::config::Config;
use crate::layer::IdempotencyLayer;
use crate::long_operation::is_path;
use crate::running::Running;
use idem_core::Store;
use idem_core::protocol::OnCrash;
use idem_runtime::problem::Documentation;
use idem_runtime::{Error, Operation};

impl<St: Store> Builder<St> {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] or [`Error::InvalidKey`] if an option has a value that cannot work, or two options
    /// contradict each other.
    pub fn build(self) -> Result<IdempotencyLayer<St>, Error> {
        self.operation().validate()?;
        let refuse = |detail: &str| Err(Error::configuration("idem::http", detail));
        if self.tenant.is_none() && !self.shared {
            return refuse(
                "say whose keys they are: `.tenant(..)`, from what was authenticated, keeps clients apart; \
                 `.shared_by_all_clients()` does not",
            );
        }
        if self.transaction.is_some() && (self.fail_open || self.on_crash == OnCrash::InDoubt) {
            return refuse(
                "a transaction that is rolled back leaves no trace, so neither `fail_open` nor \
                 `on_crash(OnCrash::InDoubt)` can go with it",
            );
        }
        if self.operations.is_some() && (self.fail_open || self.transaction.is_some()) {
            return refuse(
                "a long operation has a record that its clients look up while it runs, so neither `fail_open` nor a \
                 transaction can go with `long_operations`",
            );
        }
        if self.operations.as_deref().is_some_and(|path| !is_path(path)) {
            return refuse("the path of `long_operations` must be a path or a URI without a query");
        }
        if self.max_running == 0 {
            return refuse("at least one handler must be allowed to run");
        }
        if let Some(fault) = self.fingerprint.fault() {
            return refuse(fault);
        }
        let documentation = match self.documentation.as_deref().map(Documentation::at) {
            None => Documentation::default(),
            Some(Some(answers)) => answers,
            Some(None) => return refuse("the documentation must be a URI"),
        };
        Ok(IdempotencyLayer::of(self.assemble(documentation)))
    }

    pub(super) fn defaults(self) -> Config<St> {
        self.assemble(Documentation::default())
    }

    fn operation(&self) -> Operation {
        let operation = self.operation.clone().scope(self.scope.clone()).on_crash(self.on_crash);
        let operation = operation.store_timeout(self.store_timeout);
        let operation = if self.fail_open { operation.fail_open() } else { operation };
        match self.handler_timeout {
            Some(timeout) => operation.timeout(timeout),
            None => operation,
        }
    }

    fn assemble(self, documentation: Documentation) -> Config<St> {
        Config {
            operation: self.operation(),
            reruns: self.on_crash == OnCrash::Rerun,
            store: self.store,
            scope: self.scope,
            guard: self.guard,
            header: self.header,
            tenant: self.tenant,
            fingerprint: self.fingerprint,
            forgotten: self.forgotten,
            recording: self.recording,
            denied_headers: self.denied_headers,
            max_request_bytes: self.max_request_bytes,
            max_response_bytes: self.max_response_bytes,
            documentation,
            running: Running::none(),
            max_running: self.max_running,
            transaction: self.transaction,
            store_timeout: self.store_timeout,
            operations: self.operations,
            large_result: self.large_result,
        }
    }
}
