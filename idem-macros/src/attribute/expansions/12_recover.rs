#[idempotent(key = "{id}", recover = Self::find, store = self.store)]
async fn charge(&self, id: u64) -> Result<Receipt, ChargeError> {
    self.gateway.charge(id).await
}

// becomes
