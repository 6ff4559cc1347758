# Stands in for nixpkgs where there is no network: enough of it to evaluate, check and build our
# flake with the host's own cargo. It proves the flake's logic, its source filter and its lock; that
# the real nixpkgs has every attribute named there, it cannot.
{
  outputs = { self }: {
    lib = import ./lib.nix;
    legacyPackages = self.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ] (system: import ./. { inherit system; });
  };
}
