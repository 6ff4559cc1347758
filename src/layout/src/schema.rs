//! The JSON Schemas of types that are texts in JSON.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::layout::Layout;
use crate::swizzle::{Swizzle, SwizzledLayout};

macro_rules! text {
    ($name:ident, $description:literal) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $description })
            }
        }
    };
}

text!(Layout, "A layout as `S:D`, such as `(4,8):(8,1)`.");
text!(Swizzle, "A swizzle as `S<bits,base,shift>`.");
text!(SwizzledLayout, "A layout as `S:D`, or `S<bits,base,shift> o offset o S:D`.");
