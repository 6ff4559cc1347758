//! The mapping of blocks to tiles, and the snippets, which are compiled and run.

use std::collections::BTreeSet;
use std::process::Command;

use proptest::prelude::*;
use rgpu_layout::Limits;
use rgpu_layout::blocks::{Grid, Language, Problem, Raster, emit, parse_problems};

fn rasters() -> impl Strategy<Value = Raster> {
    prop_oneof![
        Just(Raster::AlongM),
        Just(Raster::AlongN),
        (1_i64..7).prop_map(|width| Raster::Swizzled { width }),
        Just(Raster::Swizzled { width: i64::MAX }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_tile_belongs_to_one_block(
        problems in prop::collection::vec((0_i64..900, 0_i64..900), 0..6),
        tile in (1_i64..200, 1_i64..200),
        raster in rasters(),
        swap in any::<bool>(),
    ) {
        let problems: Vec<Problem> = problems.into_iter().map(|(m, n)| Problem { m, n }).collect();
        let tile = (tile.0.max(16), tile.1.max(16));
        let grid = Grid::new(&problems, tile, raster, swap).unwrap();
        let proof = grid.prove(9, Limits::default()).unwrap();
        prop_assert_eq!(proof.points, grid.blocks() as u64 + 10);
        // The origins of C, without the grid's own arithmetic.
        let (step_m, step_n) = if swap { (tile.1, tile.0) } else { tile };
        let mut expected = BTreeSet::new();
        for (group, problem) in (0_i64..).zip(&problems) {
            for row in (0..problem.m).step_by(step_m as usize) {
                for column in (0..problem.n).step_by(step_n as usize) {
                    expected.insert((group, row, column));
                }
            }
        }
        let found: BTreeSet<_> = (0..grid.blocks())
            .filter_map(|block| grid.tile_by_search(block))
            .map(|tile| (tile.group, tile.row, tile.column))
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn impossible_grids_are_rejected() {
    let problem = [Problem { m: 1 << 40, n: 1 << 40 }];
    assert!(Grid::new(&problem, (1, 1), Raster::AlongM, false).is_err());
    assert!(Grid::new(&[Problem { m: -1, n: 1 }], (1, 1), Raster::AlongM, false).is_err());
    assert!(Grid::new(&[], (0, 1), Raster::AlongM, false).is_err());
    assert!(Grid::new(&[], (1, 1), Raster::Swizzled { width: 0 }, false).is_err());
    assert_eq!(parse_problems("80,4096; 40,7168").unwrap().len(), 2);
    assert!(parse_problems("80").is_err());
    let large =
        Grid::new(&[Problem { m: 60000, n: 60000 }], (2, 2), Raster::AlongM, false).unwrap();
    assert!(large.prove(1, Limits::default()).is_err());
}

fn grids() -> Vec<Grid> {
    let problems = parse_problems("80,4096;0,512;40,700;300,0;1,1;513,385;0,9").unwrap();
    let mut grids = Vec::new();
    for raster in [Raster::AlongM, Raster::AlongN, Raster::Swizzled { width: 3 }] {
        for swap in [false, true] {
            grids.push(Grid::new(&problems, (128, 64), raster, swap).unwrap());
        }
    }
    grids.push(Grid::new(&[], (128, 64), Raster::AlongM, false).unwrap());
    grids
}

/// What a snippet must print: a line for each block from -1 to 5 beyond the last.
fn expected(grid: &Grid) -> String {
    (-1..grid.blocks() + 5)
        .map(|block| match grid.tile_by_loop(block) {
            Some(t) => format!("{} {} {} {} {}\n", t.group, t.tile_m, t.tile_n, t.row, t.column),
            None => "none\n".to_owned(),
        })
        .collect()
}

fn output(command: &mut Command) -> Option<String> {
    // A machine without this compiler or interpreter cannot run the snippet; that of the CI has
    // both.
    let output = match command.output() {
        Err(_) if std::env::var_os("CI").is_none() => return None,
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn snippets_of_cpp_and_cuda_compile_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let (mut code, mut calls, mut wanted) = (String::new(), String::new(), String::new());
    for language in [Language::Cpp, Language::Cuda] {
        for (number, grid) in grids().iter().enumerate() {
            let name = format!("snippet_{language:?}_{number}");
            code += &format!("namespace {name} {{\n{}}}\n", emit(grid, language));
            calls += &format!(
                "for (int b = -1; b < {}; b++) {{ {name}::RgpuBlockTile t; \
                 if ({name}::rgpu_block_tile(b, t)) printf(\"%d %d %d %lld %lld\\n\", t.group, \
                 t.tile_m, t.tile_n, t.row, t.column); else puts(\"none\"); }}\n",
                grid.blocks() + 5
            );
            wanted += &expected(grid);
        }
    }
    // The host's compiler reads CUDA without its words for memory spaces.
    let source = format!(
        "#include <stdio.h>\n#define __device__\n#define __constant__\n{code}int main() {{\n{calls}}}\n"
    );
    let (file, program) = (folder.path().join("main.cpp"), folder.path().join("main"));
    std::fs::write(&file, source).unwrap();
    let mut compile = Command::new("g++");
    compile.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&file);
    if output(&mut compile).is_some() {
        assert_eq!(output(&mut Command::new(&program)).unwrap(), wanted);
    }
}

#[test]
fn snippets_of_python_run() {
    let (mut code, mut wanted) = (String::new(), String::new());
    for grid in grids() {
        code += &emit(&grid, Language::Python);
        code += &format!(
            "for b in range(-1, {}):\n    t = rgpu_block_tile(b)\n    \
             print('none' if t is None else ' '.join(map(str, t)))\n",
            grid.blocks() + 5
        );
        wanted += &expected(&grid);
    }
    if let Some(printed) = output(Command::new("python3").args(["-c", &code])) {
        assert_eq!(printed, wanted);
    }
}
