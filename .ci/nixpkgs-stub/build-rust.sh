# The phases of nixpkgs' buildRustPackage that matter to our flake: build, check, install, fixup.
for input in $nativeBuildInputs; do PATH=$input/bin:$PATH; done
export HOME=$TMPDIR CARGO_TERM_COLOR=never CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$TMPDIR/target} CARGO_NET_OFFLINE=true
cp -r --no-preserve=mode "$src" source
cd source
cmp Cargo.lock "$lock"

runHook() { true; }
# Those of installShellFiles.
installShellCompletion() {
  install -Dm644 -t "$out/share/bash-completion/completions" "$1"
  install -Dm644 -t "$out/share/fish/vendor_completions.d" "$2"
  install -Dm644 "$3" "$out/share/zsh/site-functions/_${3%.zsh}"
}
installManPage() { install -Dm644 -t "$out/share/man/man1" "$@"; }

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
  # Where cargo-zigbuild would have left them.
  if [ -n "$buildPhase" ]; then
    CARGO_TARGET_DIR=$TMPDIR/target
    mkdir -p "$CARGO_TARGET_DIR/$rustcTarget"
    mv "$built" "$CARGO_TARGET_DIR/$rustcTarget/$buildType"
  fi
elif [ -n "$buildPhase" ]; then
  eval "$buildPhase"
else
  cargo build --locked --profile "$buildType" $cargoBuildFlags
  if [ -n "$doCheck" ]; then cargo test --locked --profile "$checkProfile" $cargoTestFlags; fi
  built=$CARGO_TARGET_DIR/$buildType
fi
if [ -n "$installPhase" ]; then
  eval "$installPhase"
else
  mkdir -p "$out/bin"
  find "$built" -maxdepth 1 -type f -executable ! -name '*.so' -exec install -m755 -t "$out/bin" {} +
  eval "$postInstall"
fi
true
