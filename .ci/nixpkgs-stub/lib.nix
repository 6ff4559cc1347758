# The functions of nixpkgs' lib that our flake uses.
rec {
  genAttrs = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
  concatMap = builtins.concatMap;
  toList = x: if builtins.isList x then x else [ x ];
  importTOML = file: builtins.fromTOML (builtins.readFile file);
  getExe = package: "${package}/bin/${package.meta.mainProgram}";
  fileset = {
    unions = paths: paths;
    toSource = { root, fileset }:
      let
        begins = start: path: builtins.substring 0 (builtins.stringLength start) path == start;
        any = holds: builtins.any holds (map toString fileset);
        inside = path: any (part: path == part || begins "${part}/" path);
        above = path: any (begins "${path}/");
      in builtins.path { path = root; name = "source"; filter = path: _: inside path || above path; };
  };
  licenses = { mit = { shortName = "mit"; free = true; }; asl20 = { shortName = "asl20"; free = true; }; };
}
