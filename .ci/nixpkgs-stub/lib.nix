# The functions of nixpkgs' lib that our flake uses.
rec {
  genAttrs = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
  concatMap = builtins.concatMap;
  toList = x: if builtins.isList x then x else [ x ];
  importTOML = file: builtins.fromTOML (builtins.readFile file);
  getExe = package: "${package}/bin/${package.meta.mainProgram}";
  licenses = { mit = { shortName = "mit"; free = true; }; asl20 = { shortName = "asl20"; free = true; }; };
}
