//! The JSON Schemas of types that are texts or numbers in JSON.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::element::ElementSize;
use crate::layout::Layout;
use crate::swizzle::{Swizzle, SwizzledLayout};

macro_rules! schema {
    ($name:ident, $kind:literal, $description:literal) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": $kind, "description": $description })
            }
        }
    };
}

schema!(Layout, "string", "A layout as `S:D`, such as `(4,8):(8,1)`.");
schema!(Swizzle, "string", "A swizzle as `S<bits,base,shift>`.");
schema!(SwizzledLayout, "string", "A layout as `S:D`, or `S<bits,base,shift> o offset o S:D`.");
schema!(ElementSize, "number", "Bytes of an element: 0.5 (4 bits), or 1 to 16.");
