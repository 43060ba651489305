//! `--dry-run -f FILE`: the rules for the objects in files, without a kernel and without a cluster.
//!
//! Reads Services, EndpointSlices, this node and ServiceCIDRs, as YAML documents or JSON, lists
//! included; other kinds are ignored.

use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;
use zonewise_common::cidr::Cidr;
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::service_cidr::ServiceCidr;
use zonewise_routing::{NodeLocation, ObjectReader};

use crate::addresses::{self, NodeIps, NodePorts};
use crate::config::Config;
use crate::index::{Index, WatchId};
use crate::kernel::counter_name;
use crate::node::NodeInfo;
use crate::proxy::inputs::{self, programmed_service};
use crate::rules::delta::Delta;
use crate::rules::desired::Desired;
use crate::rules::text;

/// Why the rules cannot be shown.
#[derive(Debug, Error)]
pub enum DryRunError {
    /// A file is not YAML.
    #[error("{file} is neither YAML nor JSON: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        error: String,
    },
    /// An object in a file has a field of the wrong type, or misses one.
    #[error("{kind} {name} in {file} cannot be read: {error}")]
    Object {
        /// The file.
        file: String,
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        error: DecodeError,
    },
}

/// The objects in the files.
#[derive(Default)]
struct Objects {
    services: Vec<(String, Value)>,
    slices: Vec<(String, Value)>,
    node: Option<NodeInfo>,
    /// The names of Nodes that are not this one.
    other_nodes: Vec<String>,
    service_cidrs: Vec<Cidr>,
}

/// The tables as text. `files` are pairs of name and content.
///
/// # Errors
/// If a file or an object in it cannot be read.
pub fn tables(config: &Config, files: &[(String, String)]) -> Result<String, DryRunError> {
    let mut objects = Objects::default();
    for (file, content) in files {
        for document in documents(file, content)? {
            objects.take(file, document, &config.node_name)?;
        }
    }
    if objects.node.is_none() {
        let names = if objects.other_nodes.is_empty() {
            "none".into()
        } else {
            objects.other_nodes.join(", ")
        };
        tracing::warn!(
            "the files have no Node `{}` (they have: {names}): its zone and addresses are not known, so no traffic \
             is kept in a zone; correct --node-name, or add the Node",
            config.node_name
        );
    }
    let node = objects.node.unwrap_or_default();
    let location =
        NodeLocation::new(&config.node_name, node.zone.as_deref(), node.region.as_deref());
    let reader = ObjectReader::new(location);
    let mut index = Index::default();
    for (file, service) in &objects.services {
        let read = reader
            .read_service(&service.to_string())
            .map_err(|error| wrong(file, service, error))?;
        index.apply_service(read);
    }
    for (file, slice) in &objects.slices {
        let read =
            reader.read_slice(&slice.to_string()).map_err(|error| wrong(file, slice, error))?;
        index.apply_slice(read, WatchId(0));
    }
    Ok(render(config, &node, &reader, &index, &objects.service_cidrs))
}

/// The tables for what an index has, as text.
pub(crate) fn render(
    config: &Config,
    node: &NodeInfo,
    reader: &ObjectReader,
    index: &Index,
    service_cidrs: &[Cidr],
) -> String {
    let pairs: Vec<(&str, &str)> =
        node.addresses.iter().map(|(kind, text)| (&**kind, &**text)).collect();
    let ips = NodeIps::new(pairs, config.bind_address);
    let own: Vec<IpAddr> =
        zonewise_routing::Family::BOTH.into_iter().filter_map(|family| ips.known(family)).collect();
    let nodeports = zonewise_routing::Family::BOTH
        .map(|family| addresses::node_ports(&config.nodeport_addresses, &ips, &own, family).0);
    let options = inputs::options(config, node, &nodeports);
    let mut desired = Desired::new(inputs::node_settings(config, &ips, service_cidrs));
    let listed = nodeports.iter().flat_map(NodePorts::listed).copied();
    desired.set_nodeport_ips(listed.collect(), &mut Delta::default());
    for key in index.services().keys() {
        let programmed = programmed_service(index, reader, &config.routing, key);
        desired.replace(key, programmed, None);
    }
    let counter = |zone| counter_name(&reader.zone_name(zone).unwrap_or_default());
    text::tables(&desired, &options, service_cidrs, &counter)
}

fn documents(file: &str, content: &str) -> Result<Vec<Value>, DryRunError> {
    serde_saphyr::from_multiple::<Value>(content)
        .map_err(|error| DryRunError::Unreadable { file: file.into(), error: error.to_string() })
}

fn wrong(file: &str, object: &Value, error: impl Into<DecodeError>) -> DryRunError {
    let text = |value: &Value| value.as_str().unwrap_or("without a name").to_owned();
    DryRunError::Object {
        file: file.into(),
        kind: text(&object["kind"]),
        name: text(&object["metadata"]["name"]),
        error: error.into(),
    }
}

impl Objects {
    fn take(&mut self, file: &str, object: Value, node: &str) -> Result<(), DryRunError> {
        let kind = object["kind"].as_str().unwrap_or_default();
        match kind {
            "Service" => self.services.push((file.into(), object)),
            "EndpointSlice" => self.slices.push((file.into(), object)),
            "Node" if object["metadata"]["name"] == node => {
                let read = NodeInfo::read(Encoded::Json(&object.to_string()));
                self.node = Some(read.map_err(|error| wrong(file, &object, error))?);
            }
            "Node" => {
                self.other_nodes.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
            "ServiceCIDR" => {
                let read = ServiceCidr::deserialize(&object);
                self.service_cidrs
                    .extend(read.map_err(|error| wrong(file, &object, error))?.ranges);
            }
            list if list.ends_with("List") => {
                let of = list.trim_end_matches("List");
                for item in object["items"].as_array().into_iter().flatten() {
                    let mut item = item.clone();
                    // Items of a typed list do not repeat their kind.
                    if item["kind"].is_null() {
                        item["kind"] = of.into();
                    }
                    self.take(file, item, node)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
