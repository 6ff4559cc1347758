{
  description = "rgpu: profile, check and run GPU kernels on a remote NVIDIA GPU";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      each = f: lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system} (withCuda system));

      # NVIDIA's packages need two settings: their licence is unfree, and without cudaSupport nixpkgs
      # marks them as broken. Only rgpu-full and the cuda shell use this instance.
      withCuda =
        system:
        import nixpkgs {
          inherit system;
          config = {
            cudaSupport = true;
            allowUnfreePredicate = nixpkgs.legacyPackages.${system}._cuda.lib.allowUnfreeCudaPredicate;
          };
        };
      profilers =
        cuda: with cuda; [
          nsight_compute
          nsight_systems
          cuda_nvdisasm
          cuda_cuobjdump
          cuda_sanitizer_api
        ];

      package =
        pkgs:
        pkgs.rustPlatform.buildRustPackage {
          pname = "rgpu";
          version = (lib.importTOML ./Cargo.toml).workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          # bindgenHook: nvtx's bindings need libclang. patchelf: see postFixup.
          nativeBuildInputs = [
            pkgs.rustPlatform.bindgenHook
            pkgs.patchelf
          ];

          # One derivation for everything, so that CLI and agent always have the same version.
          buildType = "dist";
          cargoBuildFlags = lib.concatMap (package: [ "--package=${package}" ]) [
            "rgpu"
            "rgpu-agent"
            "rgpu-agent-http"
            "rgpu-runner"
            "rgpu-collector"
          ];

          # Only crates of plain computation. The other tests need sshd, loopback and a user's home.
          checkType = "debug";
          cargoTestFlags = lib.concatMap (package: [ "--package=${package}" ]) [
            "rgpu-protocol"
            "rgpu-case"
            "rgpu-format"
            "rgpu-layout"
          ];

          postInstall = ''
            travels=$out/libexec/rgpu/${pkgs.stdenv.hostPlatform.rust.rustcTarget}
            mkdir -p $travels $out/share/rgpu
            mv $out/bin/rgpu-agent $out/bin/rgpu-agent-http $out/bin/rgpu-runner $travels/
            mv $out/lib/librgpu_collector.so $travels/
            rmdir $out/lib 2>/dev/null || true
            cp -r kernels $out/share/rgpu/
          '';

          # The files in libexec are sent to GPU hosts, which have no /nix/store. They must use the usual
          # interpreter and the host's own libraries. (On NixOS they run through nix-ld.)
          postFixup = ''
            for file in rgpu-agent rgpu-agent-http rgpu-runner; do
              patchelf --set-interpreter ${interpreter pkgs} --remove-rpath $travels/$file
            done
            patchelf --remove-rpath $travels/librgpu_collector.so
          '';

          meta = {
            description = "Profile, check and run GPU kernels on a remote NVIDIA GPU";
            license = with lib.licenses; [
              mit
              asl20
            ];
            mainProgram = "rgpu";
            platforms = systems;
          };
        };
      interpreter =
        pkgs:
        if pkgs.stdenv.hostPlatform.isAarch64 then
          "/lib/ld-linux-aarch64.so.1"
        else
          "/lib64/ld-linux-x86-64.so.2";
    in
    {
      packages = each (
        pkgs: cuda: rec {
          default = package pkgs;
          rgpu = default;
          # rgpu with NVIDIA's tools in its PATH, for a machine with a GPU. About 2 GB, and unfree.
          rgpu-full = cuda.symlinkJoin {
            name = "rgpu-full-${default.version}";
            paths = [ default ] ++ profilers cuda.cudaPackages_13;
            nativeBuildInputs = [ cuda.makeWrapper ];
            postBuild = "wrapProgram $out/bin/rgpu --prefix PATH : $out/bin";
            meta.mainProgram = "rgpu";
          };
        }
      );

      apps = each (
        pkgs: _: rec {
          default = rgpu;
          rgpu = {
            type = "app";
            program = lib.getExe self.packages.${pkgs.stdenv.hostPlatform.system}.rgpu;
            meta.description = "The rgpu command";
          };
        }
      );

      devShells = each (
        pkgs: cuda:
        let
          tools = [
            pkgs.cargo
            pkgs.cargo-nextest
            pkgs.clippy
            pkgs.openssh
            pkgs.rustc
            pkgs.rustfmt
            pkgs.rustPlatform.bindgenHook
          ];
        in
        {
          default = pkgs.mkShell { packages = tools; };
          cuda = cuda.mkShell { packages = tools ++ profilers cuda.cudaPackages_13; };
        }
      );

      # rgpu-full is not checked: every `nix flake check` would download 2 GB.
      checks = each (
        pkgs: _:
        let
          rgpu = self.packages.${pkgs.stdenv.hostPlatform.system}.rgpu;
        in
        {
          inherit rgpu;
          # Checks that every file is where rgpu looks for it.
          installed = pkgs.runCommand "rgpu-installed" { } ''
            export HOME=$PWD
            ${lib.getExe rgpu} --version
            ${lib.getExe rgpu} kernels list
            cd ${rgpu}/libexec/rgpu/*
            test -x rgpu-agent && test -x rgpu-agent-http && test -x rgpu-runner && test -f librgpu_collector.so
            touch $out
          '';
        }
      );

      formatter = each (pkgs: _: pkgs.nixfmt);
    };
}
