//! Tables with all that is in them, and how messages change and read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::answers::{self, Dump};
use crate::abi;
use crate::batch::TABLE_ATTRIBUTE;
use crate::error::errno;
use crate::parse::{Attribute, Attributes, Message};
use crate::value::Family;
use crate::wire;

/// The tables of both families.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    by_name: BTreeMap<(u8, String), Table>,
    next_handle: u64,
    /// Whether tables can have an owner and outlive it.
    owners: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    flags: u32,
    owner: Option<u32>,
    user_data: Vec<u8>,
    pub(super) chains: BTreeMap<String, Chain>,
    pub(super) sets: BTreeMap<String, Set>,
    counters: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// The hook, type and policy of a base chain, as they were sent.
    pub(super) base: Option<Base>,
    user_data: Vec<u8>,
    pub(super) rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub(super) hook: u32,
    pub(super) priority: i32,
    attributes: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Rule {
    handle: u64,
    /// The list of expressions, as it was sent.
    pub(super) expressions: Vec<u8>,
    user_data: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    pub(super) key_len: u32,
    data_len: u32,
    pub(super) flags: u32,
    size: Option<u32>,
    user_data: Vec<u8>,
    /// By key. The end of an interval over one part is an element of its own, with a flag.
    pub(super) elements: BTreeMap<(Vec<u8>, bool), Element>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Element {
    /// The last key of an interval over several parts.
    pub(super) end: Option<Vec<u8>>,
    pub(super) data: Data,
    /// Everything as it was sent.
    attributes: Vec<u8>,
}

/// The data of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    None,
    Value(Vec<u8>),
    Verdict(Verdict),
    Object(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) code: i32,
    /// Empty unless it leads to a chain.
    pub(super) chain: String,
}

/// The length of `struct nft_verdict`, which is the length of the data in verdict maps.
const VERDICT_LEN: u32 = 16;

/// An error number, where something failed.
type Change<T = ()> = Result<T, i32>;

impl Tables {
    pub(super) const fn new(owners: bool) -> Self {
        Self { by_name: BTreeMap::new(), next_handle: 1, owners }
    }

    /// The tables of a family.
    pub(super) fn of(&self, family: Family) -> impl Iterator<Item = &Table> {
        let number = family.number();
        self.by_name.iter().filter(move |((of, _), _)| *of == number).map(|(_, table)| table)
    }

    pub(super) fn elements(&self) -> usize {
        let sets = self.by_name.values().flat_map(|table| table.sets.values());
        sets.map(|set| set.elements.len()).sum()
    }

    pub(super) fn flush_set(&mut self, family: Family, table: &str, set: &str) -> usize {
        let table = self.by_name.get_mut(&(family.number(), table.to_owned()));
        let set = table.and_then(|table| table.sets.get_mut(set));
        set.map_or(0, |set| std::mem::take(&mut set.elements).len())
    }

    /// Gives a table another comment, and a chain that nothing leads to. False if there is no such table.
    pub(super) fn age(
        &mut self,
        family: Family,
        table: &str,
        user_data: &[u8],
        chain: &str,
    ) -> bool {
        let Some(table) = self.by_name.get_mut(&(family.number(), table.to_owned())) else {
            return false;
        };
        table.user_data = user_data.to_vec();
        table.chains.entry(chain.to_owned()).or_default();
        true
    }

    /// The socket that owns tables was closed. True if that changes tables.
    pub(super) fn owner_gone(&mut self, port: u32) -> bool {
        let before = self.by_name.len();
        self.by_name.retain(|_, table| {
            table.owner != Some(port) || table.flags & abi::NFT_TABLE_F_PERSIST != 0
        });
        for table in self.by_name.values_mut().filter(|table| table.owner == Some(port)) {
            table.owner = None;
            table.flags &= !abi::NFT_TABLE_F_OWNER;
        }
        before != self.by_name.len()
    }

    /// Carries out one message of a batch.
    pub(super) fn change(&mut self, port: u32, message: &Message<'_>) -> Change {
        let kind = abi::nfnl_msg_type(message.kind);
        let attributes = message.attributes();
        let key = (message.family(), text(attributes, TABLE_ATTRIBUTE));
        if kind == abi::NFT_MSG_NEWTABLE {
            return self.new_table(port, key, attributes);
        }
        let handle = self.next_handle;
        self.next_handle += 1;
        let table = self.by_name.get_mut(&key).ok_or(errno::ENOENT)?;
        table.check_owner(port)?;
        match kind {
            abi::NFT_MSG_DELTABLE => {
                self.by_name.remove(&key);
                Ok(())
            }
            abi::NFT_MSG_NEWCHAIN => table.new_chain(attributes),
            abi::NFT_MSG_DELCHAIN => table.delete_chain(attributes),
            abi::NFT_MSG_NEWRULE => table.new_rule(attributes, handle),
            abi::NFT_MSG_DELRULE => table.delete_rules(attributes),
            abi::NFT_MSG_NEWSET => table.new_set(attributes),
            abi::NFT_MSG_DELSET => table.delete_set(attributes),
            abi::NFT_MSG_NEWSETELEM => table.new_elements(attributes),
            abi::NFT_MSG_DELSETELEM => table.delete_elements(attributes),
            abi::NFT_MSG_NEWOBJ => table.new_counter(attributes),
            abi::NFT_MSG_DELOBJ => table.delete_counter(attributes),
            _ => Err(errno::EINVAL),
        }
    }

    fn new_table(&mut self, port: u32, key: (u8, String), attributes: Attributes<'_>) -> Change {
        let flags = number(attributes, abi::NFTA_TABLE_FLAGS).unwrap_or_default();
        if !self.owners && flags & abi::NFT_TABLE_F_PERSIST != 0 {
            return Err(errno::EOPNOTSUPP);
        }
        let wants_owner = flags & abi::NFT_TABLE_F_OWNER != 0;
        if let Some(table) = self.by_name.get_mut(&key) {
            table.check_owner(port)?;
            return table.claim(port, flags);
        }
        let owner = wants_owner.then_some(port);
        let user_data = bytes(attributes, abi::NFTA_TABLE_USERDATA);
        self.by_name.insert(key, Table { flags, owner, user_data, ..Table::default() });
        Ok(())
    }

    /// Answers a request to list something.
    pub(super) fn dump(&self, request: &Message<'_>) -> Vec<u8> {
        let mut dump = Dump::of(request);
        let attributes = request.attributes();
        let table = text(attributes, TABLE_ATTRIBUTE);
        let kind = abi::nfnl_msg_type(request.kind);
        if kind == abi::NFT_MSG_GETSETELEM {
            let set = text(attributes, abi::NFTA_SET_ELEM_LIST_SET);
            let found = self.by_name.get(&(request.family(), table.clone()));
            let Some(found) = found.and_then(|table| table.sets.get(&set)) else {
                return answers::acknowledgement(request, errno::ENOENT);
            };
            let all: Vec<&Element> = found.elements.values().collect();
            let keys = attributes.get(abi::NFTA_SET_ELEM_LIST_ELEMENTS);
            let Some(keys) = keys.filter(|_| request.flags & abi::NLM_F_DUMP == 0) else {
                dump.elements(request.family(), &table, &set, &all);
                return dump.end();
            };
            let asked = keys.nested().map(|sent| found.elements.get(&element(sent)?.0));
            return match asked.collect::<Option<Vec<&Element>>>() {
                None => answers::acknowledgement(request, errno::ENOENT),
                Some(some) => {
                    dump.elements(request.family(), &table, &set, &some);
                    dump.acknowledged()
                }
            };
        }
        for ((family, name), found) in &self.by_name {
            let wanted = *name == table && *family == request.family();
            match kind {
                abi::NFT_MSG_GETTABLE => found.dump(&mut dump, *family, name),
                abi::NFT_MSG_GETCHAIN if wanted => found.dump_chains(&mut dump, *family, name),
                abi::NFT_MSG_GETRULE if wanted => found.dump_rules(&mut dump, *family, name),
                abi::NFT_MSG_GETSET if wanted => found.dump_sets(&mut dump, *family, name),
                abi::NFT_MSG_GETOBJ if wanted => found.dump_counters(&mut dump, *family, name),
                _ => {}
            }
        }
        dump.end()
    }

    pub(super) fn listing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for ((family, name), table) in &self.by_name {
            let family = Family::from_number(*family);
            let family = family.map(|family| family.to_string()).unwrap_or_default();
            table.list(&format!("{family} {name}"), &mut lines);
        }
        lines
    }
}

impl Table {
    fn check_owner(&self, port: u32) -> Change {
        match self.owner {
            Some(owner) if owner != port => Err(errno::EPERM),
            _ => Ok(()),
        }
    }

    /// A message asks for the table, which exists, with these flags.
    fn claim(&mut self, port: u32, flags: u32) -> Change {
        if flags == self.flags {
            return Ok(());
        }
        let ownership = abi::NFT_TABLE_F_OWNER | abi::NFT_TABLE_F_PERSIST;
        let orphan = self.flags & ownership == abi::NFT_TABLE_F_PERSIST;
        let wants_owner = flags & abi::NFT_TABLE_F_OWNER != 0;
        let persistence_differs = (flags ^ self.flags) & abi::NFT_TABLE_F_PERSIST != 0;
        if wants_owner != orphan || persistence_differs {
            return Err(errno::EOPNOTSUPP);
        }
        self.flags = flags;
        self.owner = Some(port);
        Ok(())
    }

    fn new_chain(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_CHAIN_NAME);
        let base = base(attributes);
        match self.chains.get(&name) {
            Some(chain) if base.is_some() && chain.base != base => Err(errno::EEXIST),
            Some(_) => Ok(()),
            None => {
                let user_data = bytes(attributes, abi::NFTA_CHAIN_USERDATA);
                self.chains.insert(name, Chain { base, user_data, rules: Vec::new() });
                Ok(())
            }
        }
    }

    fn delete_chain(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_CHAIN_NAME);
        if !self.chains.contains_key(&name) {
            return Err(errno::ENOENT);
        }
        let others = self.chains.iter().filter(|(of, _)| **of != name);
        let jumps = others.flat_map(|(_, chain)| &chain.rules);
        let jumped_to = jumps.flat_map(|rule| references(&rule.expressions));
        let mut used = jumped_to.filter_map(Reference::chain).any(|chain| chain == name);
        let mut elements = self.sets.values().flat_map(|set| set.elements.values());
        used |= elements.any(
            |element| matches!(&element.data, Data::Verdict(verdict) if verdict.chain == name),
        );
        if used {
            return Err(errno::EBUSY);
        }
        self.chains.remove(&name);
        Ok(())
    }

    fn new_rule(&mut self, attributes: Attributes<'_>, handle: u64) -> Change {
        let expressions = bytes(attributes, abi::NFTA_RULE_EXPRESSIONS);
        for reference in references(&expressions) {
            let exists = match &reference {
                Reference::Chain(chain) => self.chains.contains_key(chain),
                Reference::Set(set) => self.sets.contains_key(set),
                Reference::Counter(counter) => self.counters.contains_key(counter),
            };
            if !exists {
                return Err(errno::ENOENT);
            }
        }
        let user_data = bytes(attributes, abi::NFTA_RULE_USERDATA);
        let chain = self.chains.get_mut(&text(attributes, abi::NFTA_RULE_CHAIN));
        chain.ok_or(errno::ENOENT)?.rules.push(Rule { handle, expressions, user_data });
        Ok(())
    }

    fn delete_rules(&mut self, attributes: Attributes<'_>) -> Change {
        let chain = self.chains.get_mut(&text(attributes, abi::NFTA_RULE_CHAIN));
        let chain = chain.ok_or(errno::ENOENT)?;
        match attributes.get(abi::NFTA_RULE_HANDLE).and_then(Attribute::be64) {
            None => chain.rules.clear(),
            Some(handle) => {
                let at = chain.rules.iter().position(|rule| rule.handle == handle);
                chain.rules.remove(at.ok_or(errno::ENOENT)?);
            }
        }
        Ok(())
    }

    fn new_set(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_SET_NAME);
        let number = |kind| number(attributes, kind).unwrap_or_default();
        let description = attributes.get(abi::NFTA_SET_DESC).map(Attribute::nested);
        let size = description.and_then(|of| of.get(abi::NFTA_SET_DESC_SIZE)?.be32());
        // A verdict takes as much room as the kernel's struct for it.
        let data_len = match number(abi::NFTA_SET_DATA_TYPE) {
            abi::NFT_DATA_VERDICT => VERDICT_LEN,
            _ => number(abi::NFTA_SET_DATA_LEN),
        };
        let set = Set {
            key_len: number(abi::NFTA_SET_KEY_LEN),
            data_len,
            flags: number(abi::NFTA_SET_FLAGS),
            size,
            user_data: bytes(attributes, abi::NFTA_SET_USERDATA),
            elements: BTreeMap::new(),
        };
        match self.sets.get(&name) {
            Some(known) if (known.key_len, known.flags) == (set.key_len, set.flags) => Ok(()),
            Some(_) => Err(errno::EEXIST),
            None => {
                self.sets.insert(name, set);
                Ok(())
            }
        }
    }

    fn delete_set(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_SET_NAME);
        if !self.sets.contains_key(&name) {
            return Err(errno::ENOENT);
        }
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        let mut references = rules.flat_map(|rule| references(&rule.expressions));
        if references.any(|reference| reference == Reference::Set(name.clone())) {
            return Err(errno::EBUSY);
        }
        self.sets.remove(&name);
        Ok(())
    }

    fn new_elements(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_SET_ELEM_LIST_SET);
        let list = attributes.get(abi::NFTA_SET_ELEM_LIST_ELEMENTS).ok_or(errno::EINVAL)?;
        for sent in list.nested() {
            let (key, element) = element(sent).ok_or(errno::EINVAL)?;
            match &element.data {
                Data::Verdict(verdict) if !verdict.chain.is_empty() => {
                    let exists = self.chains.contains_key(&verdict.chain);
                    exists.then_some(()).ok_or(errno::ENOENT)?;
                }
                Data::Object(name) => {
                    let exists = self.counters.contains_key(name);
                    exists.then_some(()).ok_or(errno::ENOENT)?;
                }
                Data::Verdict(_) | Data::Value(_) | Data::None => {}
            }
            let set = self.sets.get_mut(&name).ok_or(errno::ENOENT)?;
            set.check(&key.0, &element)?;
            set.add(key, element)?;
        }
        Ok(())
    }

    fn delete_elements(&mut self, attributes: Attributes<'_>) -> Change {
        let set = self.sets.get_mut(&text(attributes, abi::NFTA_SET_ELEM_LIST_SET));
        let set = set.ok_or(errno::ENOENT)?;
        let Some(list) = attributes.get(abi::NFTA_SET_ELEM_LIST_ELEMENTS) else {
            set.elements.clear();
            return Ok(());
        };
        for sent in list.nested() {
            let (key, _) = element(sent).ok_or(errno::EINVAL)?;
            set.elements.remove(&key).ok_or(errno::ENOENT)?;
        }
        Ok(())
    }

    fn new_counter(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_OBJ_NAME);
        let user_data = bytes(attributes, abi::NFTA_OBJ_USERDATA);
        self.counters.entry(name).or_insert(user_data);
        Ok(())
    }

    fn delete_counter(&mut self, attributes: Attributes<'_>) -> Change {
        let name = text(attributes, abi::NFTA_OBJ_NAME);
        let mut elements = self.sets.values().flat_map(|set| set.elements.values());
        let mut rules = self.chains.values().flat_map(|chain| &chain.rules);
        let counts = Reference::Counter(name.clone());
        if elements.any(|element| element.data == Data::Object(name.clone()))
            || rules.any(|rule| references(&rule.expressions).any(|named| named == counts))
        {
            return Err(errno::EBUSY);
        }
        self.counters.remove(&name).map(drop).ok_or(errno::ENOENT)
    }

    fn dump(&self, dump: &mut Dump<'_>, family: u8, name: &str) {
        dump.add(abi::NFT_MSG_NEWTABLE, family, |out| {
            wire::string(out, abi::NFTA_TABLE_NAME, name);
            wire::be32(out, abi::NFTA_TABLE_FLAGS, self.flags);
            wire::bytes(out, abi::NFTA_TABLE_USERDATA, &self.user_data);
            if let Some(owner) = self.owner {
                wire::be32(out, abi::NFTA_TABLE_OWNER, owner);
            }
        });
    }

    fn dump_chains(&self, dump: &mut Dump<'_>, family: u8, table: &str) {
        for (name, chain) in &self.chains {
            dump.add(abi::NFT_MSG_NEWCHAIN, family, |out| {
                wire::string(out, abi::NFTA_CHAIN_TABLE, table);
                wire::string(out, abi::NFTA_CHAIN_NAME, name);
                if let Some(base) = &chain.base {
                    out.extend_from_slice(&base.attributes);
                }
                wire::bytes(out, abi::NFTA_CHAIN_USERDATA, &chain.user_data);
            });
        }
    }

    fn dump_rules(&self, dump: &mut Dump<'_>, family: u8, table: &str) {
        for (name, chain) in &self.chains {
            for rule in &chain.rules {
                dump.add(abi::NFT_MSG_NEWRULE, family, |out| {
                    wire::string(out, abi::NFTA_RULE_TABLE, table);
                    wire::string(out, abi::NFTA_RULE_CHAIN, name);
                    wire::be64(out, abi::NFTA_RULE_HANDLE, rule.handle);
                    wire::nest(out, abi::NFTA_RULE_EXPRESSIONS, |out| {
                        out.extend_from_slice(&rule.expressions);
                    });
                    wire::bytes(out, abi::NFTA_RULE_USERDATA, &rule.user_data);
                });
            }
        }
    }

    fn dump_sets(&self, dump: &mut Dump<'_>, family: u8, table: &str) {
        for (name, set) in &self.sets {
            dump.add(abi::NFT_MSG_NEWSET, family, |out| {
                wire::string(out, abi::NFTA_SET_TABLE, table);
                wire::string(out, abi::NFTA_SET_NAME, name);
                wire::be32(out, abi::NFTA_SET_FLAGS, set.flags);
                wire::be32(out, abi::NFTA_SET_KEY_LEN, set.key_len);
                wire::be32(out, abi::NFTA_SET_DATA_LEN, set.data_len);
                if let Some(size) = set.size {
                    wire::nest(out, abi::NFTA_SET_DESC, |out| {
                        wire::be32(out, abi::NFTA_SET_DESC_SIZE, size);
                    });
                }
                wire::bytes(out, abi::NFTA_SET_USERDATA, &set.user_data);
            });
        }
    }

    fn dump_counters(&self, dump: &mut Dump<'_>, family: u8, table: &str) {
        for (name, user_data) in &self.counters {
            dump.add(abi::NFT_MSG_NEWOBJ, family, |out| {
                wire::string(out, abi::NFTA_OBJ_TABLE, table);
                wire::string(out, abi::NFTA_OBJ_NAME, name);
                wire::be32(out, abi::NFTA_OBJ_TYPE, abi::NFT_OBJECT_COUNTER);
                wire::bytes(out, abi::NFTA_OBJ_USERDATA, user_data);
            });
        }
    }

    fn list(&self, prefix: &str, lines: &mut Vec<String>) {
        let flags = self.flags & !abi::NFT_TABLE_F_OWNER;
        lines.push(format!("{prefix}: flags {flags:x}, {}", hex(&self.user_data)));
        for (name, chain) in &self.chains {
            let base = chain.base.as_ref().map(|base| hex(&base.attributes)).unwrap_or_default();
            lines.push(format!("{prefix} chain {name}: {base}"));
            for rule in &chain.rules {
                lines.push(format!("{prefix} chain {name} rule {}", hex(&rule.expressions)));
            }
        }
        for (name, set) in &self.sets {
            lines.push(format!("{prefix} set {name}: {} {:x}", set.key_len, set.flags));
            for ((key, end), element) in &set.elements {
                let (key, last) = (hex(key), element.end.as_deref().map(hex).unwrap_or_default());
                let end = if *end { " end" } else { "" };
                lines.push(format!("{prefix} set {name} {key}{end} {last}: {}", element.data));
            }
        }
        lines.extend(self.counters.keys().map(|name| format!("{prefix} counter {name}")));
    }
}

impl std::fmt::Display for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Value(value) => f.write_str(&hex(value)),
            Self::Verdict(Verdict { code, chain }) => write!(f, "verdict {code} {chain}"),
            Self::Object(name) => write!(f, "object {name}"),
        }
    }
}

impl Set {
    /// Whether an element fits.
    fn check(&self, key: &[u8], element: &Element) -> Change {
        let interval_end = self.flags & abi::NFT_SET_INTERVAL != 0;
        let fits = |length: usize, expected: u32| u32::try_from(length) == Ok(expected);
        let data = match &element.data {
            Data::None => {
                self.flags & (abi::NFT_SET_MAP | abi::NFT_SET_OBJECT) == 0 || interval_end
            }
            Data::Value(value) => {
                self.flags & abi::NFT_SET_MAP != 0 && fits(value.len(), self.data_len)
            }
            Data::Verdict(_) => self.flags & abi::NFT_SET_MAP != 0 && self.data_len == VERDICT_LEN,
            Data::Object(_) => self.flags & abi::NFT_SET_OBJECT != 0,
        };
        if data && fits(key.len(), self.key_len) { Ok(()) } else { Err(errno::EINVAL) }
    }

    fn add(&mut self, key: (Vec<u8>, bool), element: Element) -> Change {
        match self.elements.get(&key) {
            Some(known) if known.data == element.data && known.end == element.end => Ok(()),
            Some(_) => Err(errno::EEXIST),
            None => {
                let full = self.size.and_then(|size| usize::try_from(size).ok());
                if full.is_some_and(|size| self.elements.len() >= size) {
                    return Err(errno::ENFILE);
                }
                self.elements.insert(key, element);
                Ok(())
            }
        }
    }
}

impl Dump<'_> {
    /// Adds elements of a set.
    fn elements(&mut self, family: u8, table: &str, set: &str, elements: &[&Element]) {
        /// Elements in one message: a list has at most 64 KiB.
        const AT_A_TIME: usize = 100;
        for some in elements.chunks(AT_A_TIME) {
            self.add(abi::NFT_MSG_NEWSETELEM, family, |out| {
                wire::string(out, abi::NFTA_SET_ELEM_LIST_TABLE, table);
                wire::string(out, abi::NFTA_SET_ELEM_LIST_SET, set);
                wire::nest(out, abi::NFTA_SET_ELEM_LIST_ELEMENTS, |out| {
                    for element in some {
                        wire::nest(out, abi::NFTA_LIST_ELEM, |out| {
                            out.extend_from_slice(&element.attributes);
                        });
                    }
                });
            });
        }
    }
}

/// An element as it was sent, with its key and whether it ends an interval.
fn element(sent: Attribute<'_>) -> Option<((Vec<u8>, bool), Element)> {
    let attributes = sent.nested();
    let value = |kind| Some(attributes.get(kind)?.nested().get(abi::NFTA_DATA_VALUE)?.value);
    let key = value(abi::NFTA_SET_ELEM_KEY)?.to_vec();
    let flags = number(attributes, abi::NFTA_SET_ELEM_FLAGS).unwrap_or_default();
    let data = attributes.get(abi::NFTA_SET_ELEM_DATA).map(Attribute::nested);
    let data = match (attributes.get(abi::NFTA_SET_ELEM_OBJREF), data) {
        (Some(name), _) => Data::Object(name.text()),
        (None, None) => Data::None,
        (None, Some(data)) => match verdict(data) {
            Some(verdict) => Data::Verdict(verdict),
            None => Data::Value(data.get(abi::NFTA_DATA_VALUE)?.value.to_vec()),
        },
    };
    let end = value(abi::NFTA_SET_ELEM_KEY_END).map(<[u8]>::to_vec);
    let is_end = flags & abi::NFT_SET_ELEM_INTERVAL_END != 0;
    Some(((key, is_end), Element { end, data, attributes: sent.value.to_vec() }))
}

/// The verdict in the data of an element or of an expression.
pub(super) fn verdict(data: Attributes<'_>) -> Option<Verdict> {
    let verdict = data.get(abi::NFTA_DATA_VERDICT)?.nested();
    let code = verdict.get(abi::NFTA_VERDICT_CODE)?.value.first_chunk()?;
    let chain = verdict.get(abi::NFTA_VERDICT_CHAIN).map(Attribute::text).unwrap_or_default();
    Some(Verdict { code: i32::from_be_bytes(*code), chain })
}

/// The hook of a base chain.
fn base(attributes: Attributes<'_>) -> Option<Base> {
    let hook = attributes.get(abi::NFTA_CHAIN_HOOK)?;
    let priority = hook.nested().get(abi::NFTA_HOOK_PRIORITY)?.value.first_chunk()?;
    let mut sent = Vec::new();
    wire::nest(&mut sent, abi::NFTA_CHAIN_HOOK, |out| out.extend_from_slice(hook.value));
    for kind in [abi::NFTA_CHAIN_POLICY, abi::NFTA_CHAIN_TYPE] {
        wire::bytes(&mut sent, kind, &bytes(attributes, kind));
    }
    Some(Base {
        hook: hook.nested().get(abi::NFTA_HOOK_HOOKNUM)?.be32()?,
        priority: i32::from_be_bytes(*priority),
        attributes: sent,
    })
}

/// What a rule needs in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reference {
    Chain(String),
    Set(String),
    Counter(String),
}

impl Reference {
    fn chain(self) -> Option<String> {
        match self {
            Self::Chain(chain) => Some(chain),
            Self::Set(_) | Self::Counter(_) => None,
        }
    }
}

/// An expression: its name and its data.
pub(super) fn expressions(list: &[u8]) -> impl Iterator<Item = (&str, Attributes<'_>)> {
    Attributes(list).filter_map(|expression| {
        let expression = expression.nested();
        let data = expression.get(abi::NFTA_EXPR_DATA).map(Attribute::nested);
        Some((expression.get(abi::NFTA_EXPR_NAME)?.str(), data.unwrap_or(Attributes(&[]))))
    })
}

/// The chains, sets and counters that expressions name.
fn references(list: &[u8]) -> impl Iterator<Item = Reference> {
    expressions(list).filter_map(|(name, data)| {
        let set = |kind| Some(Reference::Set(data.get(kind)?.text()));
        match name {
            "lookup" => set(abi::NFTA_LOOKUP_SET),
            "dynset" => set(abi::NFTA_DYNSET_SET_NAME),
            "objref" => {
                let counter = data.get(abi::NFTA_OBJREF_IMM_NAME);
                let counter = counter.map(|name| Reference::Counter(name.text()));
                counter.or_else(|| set(abi::NFTA_OBJREF_SET_NAME))
            }
            "immediate" => {
                let verdict = verdict(data.get(abi::NFTA_IMMEDIATE_DATA)?.nested())?;
                (!verdict.chain.is_empty()).then_some(Reference::Chain(verdict.chain))
            }
            _ => None,
        }
    })
}

pub(super) fn text(attributes: Attributes<'_>, kind: u16) -> String {
    attributes.get(kind).map(Attribute::text).unwrap_or_default()
}

pub(super) fn number(attributes: Attributes<'_>, kind: u16) -> Option<u32> {
    attributes.get(kind).and_then(Attribute::be32)
}

pub(super) fn bytes(attributes: Attributes<'_>, kind: u16) -> Vec<u8> {
    attributes.get(kind).map(|attribute| attribute.value.to_vec()).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
