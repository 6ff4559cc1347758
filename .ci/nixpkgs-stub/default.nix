# Packages: the host's programs, reached through PATH. Needs `--impure` and `sandbox = false`.
{ system ? "x86_64-linux", config ? { }, overlays ? [ ] }:
let
  lib = import ./lib.nix;
  drv = attributes: derivation ({
    inherit system;
    builder = "/bin/bash";
    PATH = builtins.getEnv "PATH";
    outputs = [ "out" ];
  } // attributes);

  # Every script ends in a shell builtin: Nix 2.8 kills builders whose last program closes stdout.
  script = name: text: drv { inherit name; args = [ "-euc" "${text}\ntrue" ]; };

  # A program that does nothing.
  tool = pname: (script pname ''
    mkdir -p $out/bin
    printf '#!/bin/sh\n' > $out/bin/${pname}
    chmod +x $out/bin/${pname}
  '') // { inherit pname; meta = { mainProgram = pname; }; };

  # Refused as nixpkgs refuses NVIDIA's packages, unless both gates are open.
  nvidia = pname:
    let meta = { license = { shortName = "CUDA EULA"; free = false; }; };
    in if !(config.cudaSupport or false) then throw "${pname}: broken without cudaSupport"
    else if !(config.allowUnfreePredicate or (_: false)) { inherit pname meta; } then throw "${pname}: unfree"
    else tool pname;

  rustcTarget = builtins.replaceStrings [ "-linux" ] [ "-unknown-linux-gnu" ] system;
  packages = {
    inherit lib system;
    _cuda.lib.allowUnfreeCudaPredicate = package: package.meta.license.shortName == "CUDA EULA";
    stdenv.hostPlatform = { inherit system; isAarch64 = system == "aarch64-linux"; rust = { inherit rustcTarget; }; };
    # Prebuilt programs are for this machine alone, so that this check has to be left to a build by zig.
    runCommand = name: attributes: text:
      if name == "rgpu-fits-hosts" && builtins.getEnv "NIXPKGS_STUB_PREBUILT" != "" then script name "echo > $out"
      else drv (attributes // { inherit name; args = [ "-euc" "${text}\ntrue" ]; });
    symlinkJoin = { name, paths, postBuild ? "", nativeBuildInputs ? [ ], meta ? { } }:
      (drv {
        inherit name paths;
        args = [ "-euc" ''
          for input in ${toString nativeBuildInputs}; do PATH=$input/bin:$PATH; done
          mkdir -p $out/bin
          for path in $paths; do ln -s $path/bin/* $out/bin/; done
          ${postBuild}
          true
        '' ];
      }) // { inherit meta; };
    mkShell = { packages }: drv {
      name = "nix-shell";
      inherit packages;
      stdenv = ./setup-dir;
      args = [ "-c" "export > $out" ];
    };
    bashInteractive = script "bash" "mkdir -p $out/bin; ln -s /bin/bash $out/bin/bash"; # `nix develop` asks for it
    makeWrapper = tool "wrapProgram";
    rustPlatform = {
      bindgenHook = tool "bindgen-hook";
      buildRustPackage = import ./rust.nix { inherit lib drv rustcTarget; };
    };
    cudaPackages_13 = lib.genAttrs [ "nsight_compute" "nsight_systems" "cuda_nvdisasm" "cuda_cuobjdump" "cuda_sanitizer_api" ] nvidia;
  } // lib.genAttrs [ "binutils" "cargo" "cargo-nextest" "cargo-zigbuild" "clippy" "installShellFiles" "nixfmt" "openssh" "rustc" "rustfmt" ] tool;
in
packages
