//! The copy of a message that goes to another queue.

use std::collections::BTreeMap;

use idem_messages::DELIVERED;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

/// The header of a copy with the exchange that the message was first sent to.
pub const EXCHANGE: &str = "idem-exchange";

/// The header of a copy with the routing key that the message was first sent with.
pub const ROUTING_KEY: &str = "idem-routing-key";

/// The header in which a quorum queue counts how often a message came back.
const RETURNED: &str = "x-delivery-count";

/// Prefixes of the headers in which RabbitMQ records a message's path. A copy is sent without these headers,
/// because RabbitMQ writes new ones.
const OF_THE_BROKER: [&str; 4] = [RETURNED, "x-death", "x-first-death-", "x-last-death-"];

/// The delivery mode of a message that RabbitMQ writes to disk.
const PERSISTENT: u8 = 2;

/// The number of times that a message with these properties was delivered, including this time.
pub(crate) fn deliveries(properties: &BasicProperties) -> u32 {
    number(properties, DELIVERED).saturating_add(returns(properties)).saturating_add(1)
}

/// How often a message with these properties came back to a quorum queue.
pub(crate) fn returns(properties: &BasicProperties) -> u32 {
    number(properties, RETURNED)
}

fn number(properties: &BasicProperties, name: &str) -> u32 {
    match properties.headers().as_ref().and_then(|headers| headers.inner().get(name)) {
        Some(AMQPValue::LongUInt(number)) => *number,
        Some(AMQPValue::LongLongInt(number)) => u32::try_from(*number).unwrap_or(0),
        Some(AMQPValue::LongInt(number)) => u32::try_from(*number).unwrap_or(0),
        Some(AMQPValue::LongString(number)) => number.to_string().parse().unwrap_or(0),
        _ => 0,
    }
}

/// The exchange and the routing key that the message of this copy was sent with; `None` if the message is not
/// a copy, or if one of these two headers is too long for a name. Any sender can set the headers.
pub(crate) fn origin(properties: &BasicProperties) -> Option<(ShortString, ShortString)> {
    let name = |header| ShortString::try_new(text(properties, header)?).ok();
    Some((name(EXCHANGE)?, name(ROUTING_KEY)?))
}

/// The header with this name, if it is a text.
pub(crate) fn text(properties: &BasicProperties, name: &str) -> Option<String> {
    match properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        _ => None,
    }
}

/// The properties of a copy, with the kept headers and the new headers. A new header replaces a kept header
/// of the same name. The time to live is left out, because the queue that the copy goes to decides how long
/// the copy stays. The priority is left out, too.
pub(crate) fn copied(
    properties: &BasicProperties,
    is_kept: impl Fn(&str) -> bool,
    new: &[(&str, AMQPValue)],
) -> BasicProperties {
    let mut headers: BTreeMap<_, _> = BTreeMap::new();
    for (name, value) in properties.headers().iter().flat_map(|headers| headers.inner()) {
        if is_kept(name.as_str()) && !OF_THE_BROKER.iter().any(|own| name.as_str().starts_with(own)) {
            headers.insert(name.clone(), value.clone());
        }
    }
    for (name, value) in new {
        headers.insert((*name).into(), value.clone());
    }
    let mut copied = BasicProperties::default().with_headers(FieldTable::from(headers));
    for (value, with) in [
        (properties.content_type(), BasicProperties::with_content_type as fn(_, _) -> _),
        (properties.content_encoding(), BasicProperties::with_content_encoding),
        (properties.correlation_id(), BasicProperties::with_correlation_id),
        (properties.message_id(), BasicProperties::with_message_id),
        (properties.reply_to(), BasicProperties::with_reply_to),
        (properties.kind(), BasicProperties::with_type),
        (properties.app_id(), BasicProperties::with_app_id),
    ] {
        if let Some(value) = value {
            copied = with(copied, value.clone());
        }
    }
    if let Some(at) = properties.timestamp() {
        copied = copied.with_timestamp(*at);
    }
    copied.with_delivery_mode(PERSISTENT)
}

#[cfg(test)]
mod tests {
    use lapin::BasicProperties;
    use lapin::types::{AMQPValue, FieldTable};

    use idem_messages::{DELIVERED, ERROR};

    use super::{EXCHANGE, ROUTING_KEY, copied, deliveries, origin};

    #[test]
    fn a_header_with_a_name_that_is_too_long_is_no_origin() {
        let mut headers = FieldTable::default();
        headers.insert(EXCHANGE.into(), AMQPValue::LongString("e".repeat(300).into()));
        headers.insert(ROUTING_KEY.into(), AMQPValue::LongString("orders".into()));
        assert_eq!(origin(&BasicProperties::default().with_headers(headers)), None);
    }

    #[test]
    fn a_copy_keeps_the_programs_headers_and_none_of_the_brokers() {
        let mut headers = FieldTable::default();
        headers.insert("trace".into(), AMQPValue::LongString("t-1".into()));
        headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(2));
        headers.insert("x-first-death-queue".into(), AMQPValue::LongString("orders".into()));
        headers.insert(DELIVERED.into(), AMQPValue::LongUInt(3));
        headers.insert(ERROR.into(), AMQPValue::LongString("of the time before".into()));
        let properties = BasicProperties::default()
            .with_headers(headers)
            .with_message_id("m-1".into())
            .with_expiration("100".into());
        assert_eq!(deliveries(&properties), 6);
        let copy = copied(
            &properties,
            |name| name != ERROR,
            &[(DELIVERED, AMQPValue::LongUInt(deliveries(&properties)))],
        );
        assert_eq!(deliveries(&copy), 7);
        let names: Vec<_> =
            copy.headers().as_ref().unwrap().inner().keys().map(ToString::to_string).collect();
        assert_eq!(names, [DELIVERED, "trace"]);
        assert_eq!(copy.message_id(), properties.message_id());
        assert_eq!((copy.expiration(), copy.delivery_mode()), (&None, &Some(2)));
    }
}
