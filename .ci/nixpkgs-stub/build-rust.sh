# The phases of nixpkgs' buildRustPackage that matter to our flake: build, check, install, fixup.
for input in $nativeBuildInputs; do PATH=$input/bin:$PATH; done
export HOME=$TMPDIR CARGO_TERM_COLOR=never CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$TMPDIR/target} CARGO_NET_OFFLINE=true
cp -r --no-preserve=mode "$src" source
cd source
cmp Cargo.lock "$lock"

if [ -n "$prebuilt" ]; then
  # Only the packages that the flake asks for: the folder holds others, too.
  built=$TMPDIR/built
  mkdir "$built"
  for flag in $cargoBuildFlags; do
    package=${flag#--package=}
    for file in "$prebuilt/$package" "$prebuilt/lib${package//-/_}.so"; do
      if [ -f "$file" ]; then cp "$file" "$built/"; fi
    done
  done
else
  cargo build --locked --profile "$buildType" $cargoBuildFlags
  if [ -n "$doCheck" ]; then cargo test --locked --profile "$checkProfile" $cargoTestFlags; fi
  built=$CARGO_TARGET_DIR/$buildType
fi
mkdir -p "$out/bin" "$out/lib"
find "$built" -maxdepth 1 -type f -executable ! -name '*.so' -exec install -m755 -t "$out/bin" {} +
find "$built" -maxdepth 1 -type f -name '*.so' -exec install -m755 -t "$out/lib" {} +
eval "$postInstall"
eval "$postFixup"
true
