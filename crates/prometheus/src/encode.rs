//! Families for a registry of [`prometheus_client`].

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use crate::families::{Family, Number, Series, Sink};

impl EncodeLabelSet for Series<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.labels()
            .try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

impl Sink for DescriptorEncoder<'_> {
    fn family(
        &mut self,
        Family(name, help, unit, kind): &Family<'_>,
        all: &[(Series<'_>, Number)],
    ) -> fmt::Result {
        let mut family = self.encode_descriptor(name, help, unit.as_ref(), *kind)?;
        all.iter().try_for_each(|(series, number)| {
            let mut to = family.encode_family(series)?;
            match (number, kind) {
                (Number::Counter(count), _) => to.encode_counter::<NoLabelSet, _, f64>(count, None),
                (Number::Seconds(seconds), MetricType::Counter) => {
                    to.encode_counter::<NoLabelSet, _, f64>(seconds, None)
                }
                (Number::Seconds(seconds), _) => to.encode_gauge(seconds),
                (Number::Gauge(number), _) => to.encode_gauge(number),
            }
        })
    }
}
