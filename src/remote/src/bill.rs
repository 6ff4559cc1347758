//! A provider's messages about cost. They are untrusted text from the network: their length is
//! bounded, and an amount is taken only if it is unambiguous.

use std::sync::{Arc, Mutex, PoisonError};

use super::foreign_text;

/// Larger amounts cannot be the bill of a run.
const MAX_BILL_USD: f64 = 100_000.0;

/// Maximum number of bills kept until `take`.
const MAX_PENDING_BILLS: usize = 10_000;

/// One cost message of a provider.
#[derive(Clone, Debug, PartialEq)]
pub struct Bill {
    /// The provider's text, on one line.
    pub text: String,
    /// The US dollars in it; `None` if no amount is named, or if it is unclear which one counts.
    pub usd: Option<f64>,
}

impl Bill {
    /// Reads a provider's text.
    pub fn read(message: &str) -> Self {
        let text = foreign_text::excerpt(message);
        let usd = amount(&text);
        Self { text, usd }
    }
}

/// The bills of one remote that were not taken yet. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PendingBills(Arc<Mutex<Vec<Bill>>>);

impl PendingBills {
    /// Adds a bill; drops it if too many wait.
    pub fn add(&self, bill: Bill) {
        let mut bills = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bills.len() < MAX_PENDING_BILLS {
            bills.push(bill);
        }
    }

    /// Removes and returns all bills.
    pub fn take(&self) -> Vec<Bill> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the bill of one stream. A provider may send it repeatedly as it grows, so the largest
/// amount counts. Dropping the reader adds the bill to the [`PendingBills`].
#[derive(Debug)]
pub struct BillReader {
    bills: PendingBills,
    bill: Option<Bill>,
    /// The last text read.
    last_text: String,
}

impl BillReader {
    /// A reader for one stream; create it when the stream starts.
    pub fn new(bills: &PendingBills) -> Self {
        Self { bills: bills.clone(), bill: None, last_text: String::new() }
    }

    /// Reads a text from the provider; returns it if it differs from the last one.
    pub fn read(&mut self, message: &str) -> Option<&str> {
        let bill = Bill::read(message);
        if bill.text == self.last_text {
            return None;
        }
        self.last_text.clone_from(&bill.text);
        if self.bill.as_ref().is_none_or(|known| known.usd <= bill.usd) {
            self.bill = Some(bill);
        }
        Some(&self.last_text)
    }
}

impl Drop for BillReader {
    fn drop(&mut self) {
        if let Some(bill) = self.bill.take() {
            self.bills.add(bill);
        }
    }
}

/// A part of a text with one of these words names no money spent, but a balance, a limit or a price
/// per hour.
const NOT_SPENT_WORDS: &[&str] = &[
    "remain",
    "left",
    "balance",
    "available",
    "limit",
    "budget",
    "estimate",
    "per ",
    "/h",
    "/s",
    "/m",
    "an hour",
];

/// The single amount spent that this text names; `None`: none or several.
fn amount(message: &str) -> Option<f64> {
    let lower = message.to_lowercase();
    let parts = lower.split([';', '|', '(', ')']).flat_map(|part| part.split(", "));
    let spent: Vec<(&str, f64)> = parts
        .filter(|part| !NOT_SPENT_WORDS.iter().any(|other| part.contains(other)))
        .flat_map(|part| amounts(part).into_iter().map(move |usd| (part, usd)))
        .collect();
    let mut total = spent.iter().filter(|(part, _)| part.contains("total"));
    match (&spent[..], total.next(), total.next()) {
        ([(_, usd)], ..) | (_, Some((_, usd)), None) => Some(*usd),
        _ => None,
    }
}

/// All US dollar amounts up to [`MAX_BILL_USD`] in a lower-case text: `$0.02`, `0.02 usd`,
/// `2 cents`, `2¢`.
fn amounts(text: &str) -> Vec<f64> {
    let digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (head, tail) = rest.split_at(at);
        let end = tail.find(|c| !digit(c)).unwrap_or(tail.len());
        let (number, after) = tail.split_at(end);
        let unit = after.trim_start();
        let scale = if head.trim_end().ends_with(['$', '€']) {
            head.trim_end().ends_with('$').then_some(1.0)
        } else if unit.starts_with("usd") || unit.starts_with("dollar") {
            Some(1.0)
        } else if unit.starts_with('¢') || unit.starts_with("cent") {
            Some(0.01)
        } else {
            None
        };
        let value = number.trim_end_matches(['.', ',']).replace(',', "").parse::<f64>();
        if let (Some(scale), Ok(value)) = (scale, value)
            && (0.0..=MAX_BILL_USD).contains(&(value * scale))
        {
            found.push(value * scale);
        }
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_taken_only_where_one_alone_can_be_meant() {
        for (message, usd) in [
            ("$0.02 used", Some(0.02)),
            ("Cost: $1,234.50", Some(1234.5)),
            ("billed 0.5 USD for 12 s", Some(0.5)),
            ("2 cents charged", Some(0.02)),
            ("3¢", Some(0.03)),
            ("$0.02 used, $17.48 remaining", Some(0.02)),
            ("$0.02 charged (balance $17.48)", Some(0.02)),
            ("gpu $0.02; disk $0.01; total $0.03", Some(0.03)),
            ("gpu $0.02; disk $0.01", None),
            ("B200 at $6.25/hr", None),
            ("$6.25 per hour", None),
            ("$17.48 left", None),
            ("12 credits used", None),
            ("€0.02 used", None),
            ("$99999999999999 used", None),
            ("$", None),
            ("", None),
        ] {
            assert_eq!(amount(message), usd, "{message}");
        }
    }

    #[test]
    fn a_stream_that_tells_its_bill_as_it_grows_is_billed_once() {
        let bills = PendingBills::default();
        let mut reader = BillReader::new(&bills);
        let is_new: Vec<bool> = ["$0.01 so far", "$0.01 so far", "$0.03 so far", "$0.02 so far"]
            .into_iter()
            .map(|message| reader.read(message).is_some())
            .collect();
        assert_eq!(is_new, [true, false, true, true]);
        assert!(bills.take().is_empty());
        drop(reader);
        assert_eq!(bills.take(), [Bill { text: "$0.03 so far".into(), usd: Some(0.03) }]);
        assert!(bills.take().is_empty());
    }
}
