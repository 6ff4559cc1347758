//! Calibrations that ship with rgpu: fitted shares, and for GPUs without measured rows those of
//! the nearest relative. A new one is a file in `data/calibrations` and its name in `SHIPPED`.

use std::sync::LazyLock;

use super::{Calibration, Errors, FEATURES};
use crate::kernel::OpKind;

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

/// A GPU without measured rows, and the nearest relative that has some.
struct Relative {
    id: &'static str,
    from: &'static str,
    /// The factor by which the ends of a range move for kinds of kernels without a transfer.
    margin: f64,
    transfers: &'static [Transfer],
}

/// How kernels of one kind differ from what the relative's efficiencies say.
struct Transfer {
    op: OpKind,
    /// The median of measured over predicted.
    slower: f64,
    /// The factor by which the ends of a range move.
    margin: f64,
}

const fn transfer(op: OpKind, slower: f64, margin: f64) -> Transfer {
    Transfer { op, slower, margin }
}

const fn relative(id: &'static str, margin: f64, transfers: &'static [Transfer]) -> Relative {
    Relative { id, from: "h200", margin, transfers }
}

const SAME_DIE: f64 = 1.15;
const OTHER_ARCHITECTURE: f64 = 1.5;
const TRANSFER_SOURCE: &str =
    "shifted by the public tables of aiconfigurator-core 0.12.0 (Apache-2.0)";

/// The transfers are fitted to one half of 700 rows of each kind that vLLM's collectors of
/// aiconfigurator-core 0.12.0 measured, against efficiencies that its rows of the H200 gave; 59 to
/// 84 % of the other half lie in the ranges (`docs/evidence/model.md`). The margins of the same die
/// and of other architectures are what these transfers need at most, but for attention of the L40S.
static RELATIVES: [Relative; 13] = [
    relative(
        "h100",
        SAME_DIE,
        &[
            transfer(OpKind::Gemm, 0.97, 1.05),
            transfer(OpKind::AttentionPrefill, 0.94, 1.05),
            transfer(OpKind::AttentionDecode, 0.97, 1.05),
        ],
    ),
    relative("gh200", SAME_DIE, &[]),
    relative(
        "a100",
        OTHER_ARCHITECTURE,
        &[
            transfer(OpKind::Gemm, 1.21, 1.15),
            transfer(OpKind::AttentionPrefill, 1.08, 1.2),
            transfer(OpKind::AttentionDecode, 1.32, 1.2),
        ],
    ),
    relative("a10", OTHER_ARCHITECTURE, &[]),
    relative("l4", OTHER_ARCHITECTURE, &[]),
    relative(
        "l40s",
        OTHER_ARCHITECTURE,
        &[
            transfer(OpKind::Gemm, 1.08, 1.25),
            transfer(OpKind::AttentionPrefill, 0.78, 1.5),
            transfer(OpKind::AttentionDecode, 0.89, 1.2),
        ],
    ),
    relative("rtx4090", OTHER_ARCHITECTURE, &[]),
    relative("rtx5090", OTHER_ARCHITECTURE, &[]),
    relative("gb10", OTHER_ARCHITECTURE, &[]),
    relative("b200", OTHER_ARCHITECTURE, &[transfer(OpKind::Gemm, 1.08, 1.2)]),
    relative("b300", OTHER_ARCHITECTURE, &[]),
    relative(
        "gb200",
        OTHER_ARCHITECTURE,
        &[
            transfer(OpKind::Gemm, 1.07, 1.2),
            transfer(OpKind::AttentionPrefill, 1.45, 1.35),
            transfer(OpKind::AttentionDecode, 0.86, 1.15),
        ],
    ),
    relative("gb300", OTHER_ARCHITECTURE, &[]),
];

/// The calibration that ships for a GPU of the catalogue. `None` if neither it nor a relative was
/// measured.
#[must_use]
pub fn shipped(id: &str) -> Option<Calibration> {
    let of = |id: &str| SHIPPED.iter().find(|shipped| shipped.id == id)?.calibration.clone();
    if let Some(own) = of(id) {
        return Some(own);
    }
    let relative = RELATIVES.iter().find(|relative| relative.id == id)?;
    let mut borrowed = of(relative.from)?;
    borrowed.gpu = id.to_owned();
    if let Some(source) = &mut borrowed.source {
        source.borrowed_from = Some(relative.from.to_owned());
        if !relative.transfers.is_empty() {
            source.title = format!("{}; {TRANSFER_SOURCE}", source.title);
        }
    }
    for fit in &mut borrowed.kernel {
        let transfer = relative.transfers.iter().find(|transfer| transfer.op == fit.op);
        let (slower, margin) = transfer.map_or((1.0, relative.margin), |t| (t.slower, t.margin));
        widen(&mut fit.test, margin);
        if let Some(likely) = &mut fit.likely {
            likely.margin += margin.ln();
        }
        // The first feature is 1.
        fit.efficiency.trend.get_or_insert([0.0; FEATURES])[0] += slower.ln();
    }
    borrowed.collective.iter_mut().for_each(|fit| widen(&mut fit.test, relative.margin));
    // What the power limit allows is that of a product, not of an architecture.
    borrowed.sustained.retain(|_| relative.margin <= SAME_DIE);
    borrowed.sustained.iter_mut().for_each(|fit| widen(&mut fit.errors, relative.margin));
    Some(borrowed)
}

fn widen(errors: &mut Errors, factor: f64) {
    if let Some([fast, slow]) = &mut errors.measured_over_predicted {
        (*fast, *slow) = (*fast / factor, *slow * factor);
    }
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
            assert_eq!(own.efficiency.compute, borrowed.efficiency.compute);
            let width = |errors: &Errors| {
                let [fast, slow] = errors.measured_over_predicted.unwrap();
                slow / fast
            };
            assert!(width(&borrowed.test) > width(&own.test));
        }
        assert!(shipped("mi300x").is_none());
        for Relative { id, from, .. } in &RELATIVES {
            assert!(find(id).is_ok() && shipped(from).is_some(), "{id} {from}");
        }
    }

    #[test]
    fn what_public_rows_say_of_a_relative_shifts_its_times() {
        let mut calibration = shipped("a100").unwrap();
        let title = &calibration.source.as_ref().unwrap().title;
        assert!(title.contains("aiconfigurator-core"), "{title}");
        let gpu = find("a100").unwrap().gpu().unwrap();
        let time = |calibration: &Calibration| {
            let context = crate::measurement::context(&gpu, Some(calibration));
            crate::kernel::Gemm::new(512.0, 4096.0, 4096.0, crate::Dtype::Bf16).time(&context)
        };
        let shifted = time(&calibration).time_ns();
        calibration.kernel = shipped("h200").unwrap().kernel;
        let ratio = shifted / time(&calibration).time_ns();
        assert!((ratio / 1.21 - 1.0).abs() < 1e-9, "{ratio}");
    }
}
