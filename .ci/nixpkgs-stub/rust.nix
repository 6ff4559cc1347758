# buildRustPackage with the host's cargo, offline: the crates must be in CARGO_HOME already.
{ lib, drv, rustcTarget }:
{ pname, version, src, cargoLock, nativeBuildInputs ? [ ]
, buildType ? "release", cargoBuildFlags ? [ ]
, doCheck ? true, checkType ? buildType, cargoTestFlags ? [ ]
, buildPhase ? "", installPhase ? "", postInstall ? "", dontFixup ? false, meta ? { } }:
(drv {
  name = "${pname}-${version}";
  inherit src nativeBuildInputs buildType cargoBuildFlags cargoTestFlags buildPhase installPhase postInstall;
  inherit rustcTarget;
  lock = cargoLock.lockFile;
  checkProfile = if checkType == "debug" then "dev" else checkType;
  doCheck = if doCheck then "1" else "";
  CARGO_HOME = builtins.getEnv "CARGO_HOME";
  RUSTUP_HOME = builtins.getEnv "RUSTUP_HOME";
  # Compiled dependencies may be shared with the builds before; our own crates never are, since
  # they lie elsewhere.
  CARGO_TARGET_DIR = builtins.getEnv "NIXPKGS_STUB_TARGET";
  # A folder of programs to install instead of building them.
  prebuilt = builtins.getEnv "NIXPKGS_STUB_PREBUILT";
  args = [ "-eu" ./build-rust.sh ];
}) // { inherit meta pname version; }
