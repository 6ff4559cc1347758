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

      # What the build reads: `rgpu help` has the documents.
      source = lib.fileset.toSource {
        root = ./.;
        fileset = lib.fileset.unions [
          ./Cargo.lock
          ./Cargo.toml
          ./README.md
          ./benches/compositions.rs # an example of rgpu-layout, which `cargo test` builds
          ./benches/link.rs # an example of the manifest
          ./build.rs
          ./docs
          ./fuzz/corpus # the tests of rgpu-format read it
          ./harness
          ./kernels
          ./remote
          ./schemas
          ./src
          ./tests/fake
          ./tests/fixtures
          ./wheels
          ./xtask
        ];
      };
      crate = {
        version = (lib.importTOML ./Cargo.toml).workspace.package.version;
        src = source;
        cargoLock.lockFile = ./Cargo.lock;
        buildType = "dist";
        meta = {
          license = with lib.licenses; [
            mit
            asl20
          ];
          platforms = systems;
        };
      };
      packages = map (package: "--package=${package}");

      # The programs that are sent to GPU hosts, which have no /nix/store: built with zig against glibc 2.17,
      # as `cargo xtask dist` does. (On NixOS they run through nix-ld.)
      hostFiles =
        pkgs:
        let
          target = pkgs.stdenv.hostPlatform.rust.rustcTarget;
        in
        pkgs.rustPlatform.buildRustPackage (
          crate
          // {
            pname = "rgpu-host-files";
            # bindgenHook: nvtx's bindings need libclang.
            nativeBuildInputs = [
              pkgs.rustPlatform.bindgenHook
              pkgs.cargo-zigbuild
            ];
            cargoBuildFlags = packages [
              "rgpu-agent"
              "rgpu-agent-http"
              "rgpu-runner"
              "rgpu-collector"
            ];
            buildPhase = ''
              runHook preBuild
              export ZIG_GLOBAL_CACHE_DIR=$TMPDIR/zig
              cargo zigbuild --offline --locked --profile dist --target ${target}.2.17 $cargoBuildFlags
              runHook postBuild
            '';
            doCheck = false;
            installPhase = ''
              runHook preInstall
              cd ''${CARGO_TARGET_DIR:-target}/${target}/dist
              install -Dm755 -t $out rgpu-agent rgpu-agent-http rgpu-runner librgpu_collector.so
              runHook postInstall
            '';
            # They are fit for their hosts as zig links them.
            dontFixup = true;
            meta = crate.meta // {
              description = "The programs that rgpu sends to GPU hosts";
            };
          }
        );

      package =
        pkgs: hostFiles:
        pkgs.rustPlatform.buildRustPackage (
          crate
          // {
            pname = "rgpu";
            nativeBuildInputs = [ pkgs.installShellFiles ];
            cargoBuildFlags = packages [ "rgpu" ];

            # Only crates of plain computation. The other tests need sshd, loopback and a user's home.
            checkType = "debug";
            cargoTestFlags = packages [
              "rgpu-protocol"
              "rgpu-case"
              "rgpu-format"
              "rgpu-layout"
            ];

            postInstall = ''
              mkdir -p $out/libexec/rgpu $out/share/rgpu
              ln -s ${hostFiles} $out/libexec/rgpu/${pkgs.stdenv.hostPlatform.rust.rustcTarget}
              cp -r kernels schemas $out/share/rgpu/
              export HOME=$TMPDIR
              for shell in bash fish zsh; do $out/bin/rgpu completions $shell >rgpu.$shell; done
              mkdir man
              $out/bin/rgpu man man
              installShellCompletion rgpu.bash rgpu.fish rgpu.zsh
              installManPage man/*
            '';

            meta = crate.meta // {
              description = "Profile, check and run GPU kernels on a remote NVIDIA GPU";
              mainProgram = "rgpu";
            };
          }
        );
    in
    {
      packages = each (
        pkgs: cuda: rec {
          default = package pkgs host-files;
          rgpu = default;
          host-files = hostFiles pkgs;
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

      # For a configuration of NixOS or home-manager: `pkgs.rgpu`.
      overlays.default = final: _: { rgpu = package final (hostFiles final); };

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
            test -s ${rgpu}/share/bash-completion/completions/rgpu.bash
            ls ${rgpu}/share/man/man1/rgpu-profile.1*
            cd ${rgpu}/libexec/rgpu/*
            test -x rgpu-agent && test -x rgpu-agent-http && test -x rgpu-runner && test -f librgpu_collector.so
            touch $out
          '';
          # Checks that what travels starts on hosts with glibc 2.17 or newer.
          fits-hosts = pkgs.runCommand "rgpu-fits-hosts" { nativeBuildInputs = [ pkgs.binutils ]; } ''
            cd ${self.packages.${pkgs.stdenv.hostPlatform.system}.host-files}
            for file in *; do
              newest=$(readelf --version-info --wide $file | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
              echo "$file: $newest"
              test "$(printf '%s\n' GLIBC_2.17 "$newest" | sort -V | tail -n 1)" = GLIBC_2.17
              if readelf --program-headers --dynamic --wide $file | grep /nix/store; then false; fi
            done
            touch $out
          '';
        }
      );

      formatter = each (pkgs: _: pkgs.nixfmt);
    };
}
