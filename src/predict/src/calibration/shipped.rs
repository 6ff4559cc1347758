//! Calibrations that ship with rgpu: fitted shares, and for GPUs without measured rows those of
//! the nearest relative. A new one is a file in `data/calibrations` and its name in `SHIPPED`.

use std::sync::LazyLock;

use super::{Calibration, Errors};

/// The calibration of one GPU. Its file is parsed when it is first used.
struct Shipped {
    id: &'static str,
    calibration: LazyLock<Option<Calibration>>,
}

macro_rules! shipped_files {
    ($($id:literal)*) => {
        [$(Shipped {
            id: $id,
            // A file that cannot be parsed would be missing here; a test parses every file.
            calibration: LazyLock::new(|| {
                Calibration::parse(include_str!(concat!("../../data/calibrations/", $id, ".toml"))).ok()
            }),
        }),*]
    };
}

static SHIPPED: [Shipped; 1] = shipped_files!["h200"];

/// GPUs without measured rows, the nearest relative that has some, and the factor by which the ends
/// of an interval move: less for the same die than for another architecture.
const RELATIVES: &[(&str, &str, f64)] = &[
    ("h100", "h200", SAME_DIE),
    ("gh200", "h200", SAME_DIE),
    ("a100", "h200", OTHER_ARCHITECTURE),
    ("a10", "h200", OTHER_ARCHITECTURE),
    ("l4", "h200", OTHER_ARCHITECTURE),
    ("l40s", "h200", OTHER_ARCHITECTURE),
    ("rtx4090", "h200", OTHER_ARCHITECTURE),
    ("rtx5090", "h200", OTHER_ARCHITECTURE),
    ("gb10", "h200", OTHER_ARCHITECTURE),
    ("b200", "h200", OTHER_ARCHITECTURE),
    ("b300", "h200", OTHER_ARCHITECTURE),
    ("gb200", "h200", OTHER_ARCHITECTURE),
    ("gb300", "h200", OTHER_ARCHITECTURE),
];
/// Assumed, not measured.
const SAME_DIE: f64 = 1.15;
/// Assumed, not measured.
const OTHER_ARCHITECTURE: f64 = 1.5;

/// The calibration that ships for a GPU of the catalogue. `None` if neither it nor a relative was
/// measured.
#[must_use]
pub fn shipped(id: &str) -> Option<Calibration> {
    let of = |id: &str| SHIPPED.iter().find(|shipped| shipped.id == id)?.calibration.clone();
    if let Some(own) = of(id) {
        return Some(own);
    }
    let (_, relative, factor) = RELATIVES.iter().find(|(name, ..)| *name == id)?;
    let mut borrowed = of(relative)?;
    borrowed.gpu = id.to_owned();
    if let Some(source) = &mut borrowed.source {
        source.borrowed_from = Some((*relative).to_owned());
    }
    let widen = |errors: &mut Errors| {
        if let Some([fast, slow]) = &mut errors.measured_over_predicted {
            (*fast, *slow) = (*fast / factor, *slow * factor);
        }
    };
    for fit in &mut borrowed.kernel {
        widen(&mut fit.test);
        if let Some(likely) = &mut fit.likely {
            likely.margin += factor.ln();
        }
    }
    borrowed.collective.iter_mut().for_each(|fit| widen(&mut fit.test));
    // What the power limit allows is that of a product, not of an architecture.
    borrowed.sustained.retain(|_| *factor <= SAME_DIE);
    borrowed.sustained.iter_mut().for_each(|fit| widen(&mut fit.errors));
    Some(borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    #[test]
    fn every_file_is_read_and_says_where_it_comes_from() {
        for file in &SHIPPED {
            let calibration = file.calibration.as_ref().unwrap();
            assert_eq!(calibration.gpu, file.id);
            assert!(calibration.source.is_some(), "{}", file.id);
            assert!(find(file.id).is_ok());
            assert!(!calibration.kernel.is_empty());
            for fit in &calibration.kernel {
                assert!(fit.test.measured_over_predicted.is_some(), "{} {:?}", file.id, fit.op);
            }
        }
    }

    #[test]
    fn a_gpu_without_rows_borrows_from_its_relative_with_a_wider_interval() {
        let (own, borrowed) = (shipped("h200").unwrap(), shipped("h100").unwrap());
        let from = borrowed.source.unwrap().borrowed_from;
        assert_eq!((borrowed.gpu.as_str(), from.as_deref()), ("h100", Some("h200")));
        for (own, borrowed) in own.kernel.iter().zip(&borrowed.kernel) {
            assert_eq!(own.efficiency, borrowed.efficiency);
            let width = |errors: &Errors| {
                let [fast, slow] = errors.measured_over_predicted.unwrap();
                slow / fast
            };
            assert!(width(&borrowed.test) > width(&own.test));
        }
        assert!(shipped("mi300x").is_none());
        for (id, relative, _) in RELATIVES {
            assert!(find(id).is_ok() && shipped(relative).is_some(), "{id} {relative}");
        }
    }
}
