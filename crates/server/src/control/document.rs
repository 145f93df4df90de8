//! The document of the API against the types that its answers are written from: each schema has the
//! members of one type, neither more nor fewer, so that the document cannot fall behind.
//!
//! The names of a type's members are taken from its `Deserialize`, which tells them to whoever
//! reads; a type with a flattened member tells nothing, so its names are put together here.

use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::events::EventReport;
use super::fleet::{
    FleetConfigNodeReport, FleetConfigReport, FleetCountersReport, FleetLeftReport,
    FleetNodeReport, FleetOrderReport, FleetReport, FleetSiteReport, FleetSitesReport,
    FleetsReport,
};
use super::health::HealthReport;
use super::holdings::{HeldReport, HoldingsReport, QuotaReport};
use super::peers::{PeerReport, PeersReport};
use super::report::{
    ClassesReport, CountReport, DamageReport, DetailReport, DiskReport, DisksReport, EndReport,
    EntriesReport, EntryReport, ExchangesReport, FillReport, FillsReport, Line, LiveReport,
    OriginReport, ProblemReport, ProgressReport, PurgeReport, PurgesReport, RecentPurgeReport,
    RemovedReport, ResetReport, ScrubReport, ServerReport, SiteReport, SitesReport, SlicesReport,
    VariantReport, ZoneReport, ZonesReport,
};
use super::tiers::{TierReport, TiersReport};
use super::warm::{OrderReport, WarmFailureReport, WarmReport, WarmsReport};
use super::{plus, why};

/// The members of a type, or the variants of an enum.
pub(super) fn members<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
    let mut names = Vec::new();
    // Deserializing ends with an error, once the names are told.
    let _ = T::deserialize(Names(&mut names));
    assert!(!names.is_empty(), "a type without members");
    names
}

/// Notes the names and gives nothing.
struct Names<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("names only"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(variants);
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// Members of the holdings of a site, beside those of holdings.
const HELD_BY_SITE: [&str; 3] = ["site", "disks", "quotas"];

/// Each schema with members, and those of its type.
fn described() -> Vec<(&'static str, Vec<&'static str>)> {
    let with = |own: &[&'static str], flat: Vec<&'static str>| [own, &flat].concat();
    let own = vec![
        ("Problem", members::<ProblemReport>()),
        ("Count", members::<CountReport>()),
        ("Live", members::<LiveReport>()),
        ("Disk", members::<DiskReport>()),
        ("Scrub", members::<ScrubReport>()),
        ("ZoneDisk", with(&["zone"], members::<DiskReport>())),
        ("Zone", members::<ZoneReport>()),
        ("Server", members::<ServerReport>()),
        ("Classes", members::<ClassesReport>()),
        ("Exchanges", members::<ExchangesReport>()),
        ("Health", members::<HealthReport>()),
        ("Zones", members::<ZonesReport>()),
        ("Disks", members::<DisksReport>()),
        ("Held", members::<HeldReport>()),
        (
            "HeldOnDisk",
            with(&["zone", "disk"], members::<HeldReport>()),
        ),
        ("HeldBySite", with(&HELD_BY_SITE, members::<HeldReport>())),
        ("SiteQuota", members::<QuotaReport>()),
        ("Holdings", members::<HoldingsReport>()),
        ("Removed", members::<RemovedReport>()),
        ("Reset", members::<ResetReport>()),
        ("OriginCount", members::<OriginReport>()),
        ("Site", members::<SiteReport>()),
        ("Sites", members::<SitesReport>()),
        ("Fill", members::<FillReport>()),
        ("Fills", members::<FillsReport>()),
        ("PeerState", members::<PeerReport>()),
        ("PeerStates", members::<PeersReport>()),
        ("RecentPurge", members::<RecentPurgeReport>()),
        ("Purges", members::<PurgesReport>()),
        ("Event", members::<EventReport>()),
        ("Warm", members::<WarmReport>()),
        ("WarmFailure", members::<WarmFailureReport>()),
        ("Warms", members::<WarmsReport>()),
        ("Purge", members::<PurgeReport>()),
        ("Variant", members::<VariantReport>()),
        ("Slices", members::<SlicesReport>()),
        ("Detail", members::<DetailReport>()),
        ("Entry", members::<EntryReport>()),
        ("Entries", members::<EntriesReport>()),
        ("Damage", members::<DamageReport>()),
        ("Progress", members::<ProgressReport>()),
        ("End", members::<EndReport>()),
        ("Why", members::<why::WhyReport>()),
        ("WhyCache", members::<why::WhyCacheReport>()),
        ("WhyFill", members::<why::FillReport>()),
        ("ValueInForce", members::<crate::explain::ValueInForce>()),
        ("PurgeInForce", members::<why::PurgeInForceReport>()),
        ("NotStored", members::<why::NotStoredReport>()),
        ("Backoff", members::<why::BackoffReport>()),
    ];
    let wanted = vec![
        ("UpstreamServerWanted", plus::MEMBERS.to_vec()),
        ("WarmWanted", members::<OrderReport>()),
    ];
    [own, of_fleets(), plus::described(), wanted].concat()
}

/// Those of fleets and second tiers.
fn of_fleets() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("FleetNode", members::<FleetNodeReport>()),
        ("Fleet", members::<FleetReport>()),
        ("FleetConfig", members::<FleetConfigReport>()),
        ("FleetConfigNode", members::<FleetConfigNodeReport>()),
        ("FleetOrder", members::<FleetOrderReport>()),
        ("FleetCounters", members::<FleetCountersReport>()),
        ("FleetSite", members::<FleetSiteReport>()),
        ("FleetSites", members::<FleetSitesReport>()),
        ("FleetLeft", members::<FleetLeftReport>()),
        ("Fleets", members::<FleetsReport>()),
        ("Tier", members::<TierReport>()),
        ("Tiers", members::<TiersReport>()),
    ]
}

/// Place where a schema stands; what has members has a name, and lines have one member each.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Top,
    Inside,
}

fn document() -> Value {
    serde_json::from_str(crate::handler::api::OPENAPI).unwrap()
}

fn sorted(names: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    names.sort();
    names
}

fn is_object(schema: &Value) -> bool {
    let kind = &schema["type"];
    let kinds = kind.as_array().map(Vec::as_slice);
    kinds
        .unwrap_or(std::slice::from_ref(kind))
        .contains(&Value::from("object"))
}

#[test]
fn every_schema_has_the_members_of_its_type() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (name, members) in described() {
        let schema = schemas.get(name).unwrap_or_else(|| panic!("no {name}"));
        let properties = schema["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("{name} has no members"));
        assert_eq!(
            sorted(properties.keys().cloned()),
            sorted(members),
            "{name}"
        );
    }
}

#[test]
fn every_schema_with_members_is_compared_and_open_to_no_others() {
    let document = document();
    let known: Vec<&str> = described().into_iter().map(|(name, _)| name).collect();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        if is_object(schema) && schema.get("properties").is_some() {
            assert!(known.contains(&name.as_str()), "{name} has no type");
        }
        let mut left = vec![(schema, Place::Top)];
        while let Some((schema, place)) = left.pop() {
            if is_object(schema) {
                assert!(schema.get("additionalProperties").is_some(), "{name}");
                let has_members = schema.get("properties").is_some();
                let is_named = place == Place::Top || name == "Line";
                assert!(is_named || !has_members, "{name} has members inside");
            }
            match schema {
                Value::Object(all) => left.extend(all.values().map(|it| (it, Place::Inside))),
                Value::Array(all) => left.extend(all.iter().map(|it| (it, Place::Inside))),
                _ => {}
            }
        }
    }
}

#[test]
fn every_line_of_a_list_is_described() {
    let document = document();
    let lines = document["components"]["schemas"]["Line"]["oneOf"].as_array();
    let lines = lines.unwrap().iter();
    let names = lines.map(|line| line["required"][0].as_str().unwrap());
    assert_eq!(sorted(names), sorted(members::<Line>()));
}
