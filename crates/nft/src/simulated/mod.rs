//! A kernel in memory: what the real one does with our messages, without privileges and with faults on
//! demand.
//!
//! ```text
//!   Socket, Conntrack ──► bytes ──► Connection ──► hook: a fault? ──► tables: all or nothing
//!                                       ◄── bytes ── acknowledgement, dump, or nothing at all
//!
//!   Ruleset::destinations ──► walks the rules for a packet, once for every random number
//!   Ruleset::destination  ──► walks them once, with random numbers of the caller
//! ```
//!
//! It knows tables with their owners, chains, rules, sets and maps with their elements, counters, the
//! generation of the ruleset, and flows. The expressions of rules are stored as bytes and only looked into for the
//! chains and sets that they name, and when a packet is walked through them. Time does not pass in it:
//! elements do not expire.
//!
//! Nothing is random and nothing depends on a clock, so equal calls have equal answers.

mod answers;
mod mirror;
mod tables;
mod walk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::abi;
use crate::batch::describe;
use crate::conntrack::Flow;
use crate::error::errno;
use crate::link::{Link, Received};
use crate::parse::{Attribute, Message, Messages};
use crate::socket::Socket;
use crate::value::Family;
use crate::wire;

use mirror::Mirror;
use tables::Tables;
pub use walk::{Destination, Packet};

/// A kernel in memory. Clones are the same kernel.
#[derive(Clone)]
pub struct SimulatedKernel(Arc<Mutex<State>>);

struct State {
    tables: Tables,
    generation: u32,
    /// The port ids of open sockets, with their processes.
    ports: BTreeMap<u32, u32>,
    next_port: u32,
    next_process: u32,
    ended: BTreeSet<u32>,
    flows: BTreeSet<Flow>,
    hook: Option<Hook>,
    observer: Option<Observer>,
    mirror: Option<Mirror>,
    /// What every call is answered with, whatever it asks.
    nonsense: Option<Vec<u8>>,
}

/// Sees every call before it is carried out, and may let it fail.
type Hook = Box<dyn FnMut(&Call<'_>) -> Option<SimulatedFault> + Send>;

/// Sees the tables after every change.
type Observer = Box<dyn FnMut(&Ruleset<'_>) + Send>;

/// The tables at one moment.
pub struct Ruleset<'a>(&'a Tables);

impl Ruleset<'_> {
    /// Where the first packet of a connection goes that comes in from outside of this machine, for every
    /// random number that rules on its way draw.
    #[must_use]
    pub fn destinations(&self, packet: &Packet) -> BTreeSet<Destination> {
        walk::destinations(self.0, packet)
    }

    /// Where such a packet goes if every random number is what `draw` returns for its modulus, a number below it. With
    /// numbers that are drawn evenly, destinations have the shares that the rules give them.
    #[must_use]
    pub fn destination(&self, packet: &Packet, mut draw: impl FnMut(u32) -> u32) -> Destination {
        walk::destination(self.0, packet, &mut draw)
    }

    /// How many elements all sets have together.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.0.elements()
    }
}

/// What a process asks of the kernel.
pub struct Call<'a> {
    /// The number of the process, see [`Process::number`].
    pub process: u32,
    messages: &'a [Message<'a>],
}

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimulatedFault {
    /// The kernel answers with this error number, and does nothing.
    Refused(i32),
    /// The kernel does it, and its answer is lost.
    AnswerLost,
    /// Neither the request nor an answer arrives: this is the error number of the sending call.
    NotSent(i32),
    /// What was read changed meanwhile; for calls that read.
    Interrupted,
    /// The process ends here, before the call.
    Killed,
}

impl Call<'_> {
    /// Whether it changes tables.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        self.messages.first().is_some_and(|first| first.kind == abi::NFNL_MSG_BATCH_BEGIN)
    }

    /// Whether it is about connection tracking.
    #[must_use]
    pub fn is_conntrack(&self) -> bool {
        self.messages.first().is_some_and(|first| first.kind >> 8 == abi::NFNL_SUBSYS_CTNETLINK)
    }

    /// What it does, for people: equal messages one after the other are listed once, with their number.
    #[must_use]
    pub fn description(&self) -> String {
        let mut parts: Vec<(String, u32)> = Vec::new();
        for message in self.messages {
            let Some(text) = in_words(message) else { continue };
            match parts.last_mut() {
                Some((last, times)) if *last == text => *times += 1,
                _ => parts.push((text, 1)),
            }
        }
        let line = |(text, times): (String, u32)| match times {
            1 => text,
            times => format!("{text} ×{times}"),
        };
        let complete =
            self.messages.last().is_some_and(|last| last.kind == abi::NFNL_MSG_BATCH_END);
        let checked = if self.is_commit() && !complete { "check: " } else { "" };
        format!("{checked}{}", parts.into_iter().map(line).collect::<Vec<_>>().join(", "))
    }
}

/// A message in words; none for the begin and end of a batch.
fn in_words(message: &Message<'_>) -> Option<String> {
    if message.kind >> 8 == abi::NFNL_SUBSYS_CTNETLINK {
        let delete = abi::nfnl_msg_type(message.kind) == abi::IPCTNL_MSG_CT_DELETE;
        return Some(if delete { "delete a flow" } else { "list flows" }.to_owned());
    }
    if message.kind >> 8 != abi::NFNL_SUBSYS_NFTABLES {
        return None;
    }
    let listed = match abi::nfnl_msg_type(message.kind) {
        abi::NFT_MSG_GETTABLE => "tables",
        abi::NFT_MSG_GETCHAIN => "chains",
        abi::NFT_MSG_GETRULE => "rules",
        abi::NFT_MSG_GETSET => "sets",
        abi::NFT_MSG_GETOBJ => "counters",
        abi::NFT_MSG_GETGEN => "the generation",
        abi::NFT_MSG_GETSETELEM => {
            let set = message.attributes().get(abi::NFTA_SET_ELEM_LIST_SET);
            return Some(format!("list {}", set.map(Attribute::text).unwrap_or_default()));
        }
        _ => {
            let elements = message.attributes().get(abi::NFTA_SET_ELEM_LIST_ELEMENTS);
            let is_set = matches!(
                abi::nfnl_msg_type(message.kind),
                abi::NFT_MSG_NEWSETELEM | abi::NFT_MSG_DELSETELEM
            );
            return Some(match elements.filter(|_| is_set) {
                Some(list) => format!("{} ({})", describe(message), list.nested().count()),
                None => describe(message),
            });
        }
    };
    Some(format!("list {listed}"))
}

impl fmt::Debug for SimulatedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedKernel")
    }
}

impl SimulatedKernel {
    /// A kernel without tables. `owners`: whether it has tables with an owner that outlive their process,
    /// as Linux has since 6.9.
    #[must_use]
    pub fn new(owners: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            tables: Tables::new(owners),
            generation: 1,
            ports: BTreeMap::new(),
            next_port: 1000,
            next_process: 1,
            ended: BTreeSet::new(),
            flows: BTreeSet::new(),
            hook: None,
            observer: None,
            mirror: None,
            nonsense: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// A new process on this kernel.
    #[must_use]
    pub fn process(&self) -> Process {
        let mut state = self.state();
        let number = state.next_process;
        state.next_process += 1;
        drop(state);
        Process { kernel: self.clone(), number }
    }

    /// Calls `hook` for every call from now on. It must not use this kernel.
    pub fn set_hook(&self, hook: impl FnMut(&Call<'_>) -> Option<SimulatedFault> + Send + 'static) {
        self.state().hook = Some(Box::new(hook));
    }

    /// Calls `observer` with the tables after every commit from now on. It must not use this kernel.
    pub fn set_observer(&self, observer: impl FnMut(&Ruleset<'_>) + Send + 'static) {
        self.state().observer = Some(Box::new(observer));
    }

    /// Answers every call from now on with these bytes, as if they were the response to it.
    pub fn answer_with(&self, bytes: &[u8]) {
        self.state().nonsense = Some(bytes.to_vec());
    }

    /// From now on every batch is also sent to a real kernel, which has to answer the same. `inside` calls a function in
    /// the network namespace of that kernel's tables.
    pub fn mirror(&self, inside: impl Fn(&mut (dyn FnMut() + Send)) + Send + 'static) {
        self.state().mirror = Some(Mirror::new(Box::new(inside)));
    }

    /// Where the real kernel beside this one has answered something else, or has other tables now. Ends the
    /// comparison, and calls the hook no more.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        self.state().hook = None;
        let Some(mut mirror) = self.state().mirror.take() else { return Vec::new() };
        match self.process().connect() {
            Ok(connection) => mirror.differences(&mut Socket::over(Link::simulated(connection))),
            Err(error) => vec![error.to_string()],
        }
    }

    /// Calls `look` with the tables as they are now. It must not use this kernel.
    pub fn look<T>(&self, look: impl FnOnce(&Ruleset<'_>) -> T) -> T {
        look(&Ruleset(&self.state().tables))
    }

    /// The generation of the ruleset.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.state().generation
    }

    /// Everything in the tables as sorted lines, without what differs from start to start: handles,
    /// and the port id of the owner.
    #[must_use]
    pub fn listing(&self) -> Vec<String> {
        self.state().tables.listing()
    }

    /// Changes the tables behind everybody's back, as another program could: deletes the elements of a
    /// set. Returns how many there were.
    pub fn flush_set(&self, family: Family, table: &str, set: &str) -> usize {
        let mut state = self.state();
        let removed = state.tables.flush_set(family, table, set);
        state.generation += u32::from(removed > 0);
        removed
    }

    /// Makes a table look as another version of a program has left it: with another comment, and with a chain that
    /// nothing leads to. Its rules work as before. False if there is no such table.
    pub fn age_table(&self, family: Family, table: &str, comment: &str) -> bool {
        let mut user_data = Vec::new();
        wire::push_comment(&mut user_data, abi::NFTNL_UDATA_TABLE_COMMENT, comment);
        let mut state = self.state();
        let aged = state.tables.age(family, table, &user_data, "of-another-version");
        state.generation += u32::from(aged);
        aged
    }

    /// Adds a flow.
    pub fn add_flow(&self, flow: Flow) {
        self.state().flows.insert(flow);
    }

    /// All flows.
    #[must_use]
    pub fn flows(&self) -> Vec<Flow> {
        self.state().flows.iter().copied().collect()
    }
}

/// A process on a kernel in memory. When it ends, its sockets are closed.
#[derive(Clone, Debug)]
pub struct Process {
    kernel: SimulatedKernel,
    number: u32,
}

impl Process {
    /// Its number: 1 is the first.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Ends it, wherever it is: its sockets are closed, and all that it still tries fails.
    pub fn kill(&self) {
        self.kernel.state().end(self.number);
    }

    pub(crate) fn connect(&self) -> io::Result<Connection> {
        let mut state = self.kernel.state();
        if state.ended.contains(&self.number) {
            return Err(io::Error::from_raw_os_error(errno::EMFILE));
        }
        let port = state.next_port;
        state.next_port += 1;
        state.ports.insert(port, self.number);
        drop(state);
        Ok(Connection { process: self.clone(), port, inbox: VecDeque::new() })
    }
}

/// An open socket.
pub(crate) struct Connection {
    process: Process,
    port: u32,
    inbox: VecDeque<Answer>,
}

/// Gives all messages in the bytes a sequence number, so that they count as a response.
fn with_sequence(mut bytes: Vec<u8>, sequence: u32) -> Vec<u8> {
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..abi::NLMSG_HDRLEN))
    {
        header[8..12].copy_from_slice(&sequence.to_ne_bytes());
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        at += usize::try_from(length).unwrap_or(usize::MAX).clamp(abi::NLMSG_HDRLEN, 1 << 20);
        at = at.next_multiple_of(abi::NLMSG_ALIGNTO);
    }
    bytes
}

/// What one read brings.
enum Answer {
    Messages(Vec<u8>),
    Overrun,
}

impl Connection {
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    pub(crate) fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let messages: Vec<Message<'_>> = Messages(&bytes).collect();
        let mut state = self.process.kernel.state();
        if state.ended.contains(&self.process.number) {
            return Err(io::Error::from_raw_os_error(errno::EPERM));
        }
        if let Some(nonsense) = &state.nonsense {
            let sequence = messages.first().map_or(0, |first| first.sequence);
            self.inbox.push_back(Answer::Messages(with_sequence(nonsense.clone(), sequence)));
            return Ok(());
        }
        let call = Call { process: self.process.number, messages: &messages };
        let fault = state.hook.as_mut().and_then(|hook| hook(&call));
        match fault {
            Some(SimulatedFault::NotSent(errno)) => {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Some(SimulatedFault::Killed) => {
                state.end(self.process.number);
                return Err(io::Error::from_raw_os_error(errno::EPERM));
            }
            Some(
                SimulatedFault::Refused(_)
                | SimulatedFault::AnswerLost
                | SimulatedFault::Interrupted,
            )
            | None => {}
        }
        let answer = state.answer(self.port, &call, fault);
        let refused = matches!(fault, Some(SimulatedFault::Refused(_)));
        if let Some(mirror) = state.mirror.as_mut().filter(|_| call.is_commit() && !refused) {
            mirror.commit(self.port, &bytes, &answer, &call.description());
        }
        drop(state);
        self.inbox.push_back(match fault {
            Some(SimulatedFault::AnswerLost) => Answer::Overrun,
            Some(
                SimulatedFault::Refused(_)
                | SimulatedFault::NotSent(_)
                | SimulatedFault::Interrupted
                | SimulatedFault::Killed,
            )
            | None => Answer::Messages(answer),
        });
        Ok(())
    }

    pub(crate) fn receive<'b>(&mut self, buffer: &'b mut Vec<u8>) -> Received<'b> {
        match self.inbox.pop_front() {
            None => Received::Nothing,
            Some(Answer::Overrun) => Received::Overrun,
            Some(Answer::Messages(bytes)) => {
                *buffer = bytes;
                Received::Messages(Messages(buffer))
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.process.kernel.state().close(self.port);
    }
}

impl State {
    fn end(&mut self, process: u32) {
        self.ended.insert(process);
        let open = self.ports.iter().filter(|(_, of)| **of == process);
        let open: Vec<u32> = open.map(|(port, _)| *port).collect();
        open.into_iter().for_each(|port| self.close(port));
    }

    fn close(&mut self, port: u32) {
        if let Some(mirror) = &mut self.mirror {
            mirror.close(port);
        }
        if self.ports.remove(&port).is_some() && self.tables.owner_gone(port) {
            self.generation += 1;
        }
    }

    /// Carries a call out, unless it is to be refused; returns the answer.
    fn answer(&mut self, port: u32, call: &Call<'_>, fault: Option<SimulatedFault>) -> Vec<u8> {
        let Some(first) = call.messages.first() else { return Vec::new() };
        if let Some(SimulatedFault::Refused(errno)) = fault {
            let subject = call.messages.get(usize::from(call.is_commit())).unwrap_or(first);
            return answers::acknowledgement(subject, errno);
        }
        if call.is_commit() {
            return self.commit(port, call.messages);
        }
        if call.is_conntrack() {
            return self.conntrack(first);
        }
        let answer = match abi::nfnl_msg_type(first.kind) {
            abi::NFT_MSG_GETGEN => answers::generation(first, self.generation),
            _ => self.tables.dump(first),
        };
        match fault {
            Some(SimulatedFault::Interrupted) => answers::interrupted(answer),
            Some(
                SimulatedFault::Refused(_)
                | SimulatedFault::AnswerLost
                | SimulatedFault::NotSent(_)
                | SimulatedFault::Killed,
            )
            | None => answer,
        }
    }

    /// Applies a batch: all of it or nothing. One without an end is only checked.
    fn commit(&mut self, port: u32, messages: &[Message<'_>]) -> Vec<u8> {
        let ends = |message: &Message<'_>| message.kind == abi::NFNL_MSG_BATCH_END;
        let (complete, body) = match messages {
            [_, body @ .., end] if ends(end) => (true, body),
            [_, body @ ..] => (false, body),
            [] => return Vec::new(),
        };
        let begin = &messages[0];
        let expected = begin.attributes().get(abi::NFNL_BATCH_GENID).and_then(Attribute::be32);
        if expected.is_some_and(|expected| expected != self.generation) {
            return answers::acknowledgement(begin, errno::ERESTART);
        }
        let mut next = self.tables.clone();
        for message in body {
            if let Err(errno) = next.change(port, message) {
                return answers::acknowledgement(message, errno);
            }
        }
        if complete {
            self.tables = next;
            self.generation += 1;
            if let Some(observer) = &mut self.observer {
                observer(&Ruleset(&self.tables));
            }
        }
        body.last().map(|last| answers::acknowledgement(last, 0)).unwrap_or_default()
    }

    fn conntrack(&mut self, message: &Message<'_>) -> Vec<u8> {
        if abi::nfnl_msg_type(message.kind) == abi::IPCTNL_MSG_CT_GET {
            return answers::flows(message, &self.flows);
        }
        let found = self.flows.iter().copied().find(|flow| answers::is_about(message, flow));
        let errno = match found {
            Some(flow) => {
                self.flows.remove(&flow);
                0
            }
            None => errno::ENOENT,
        };
        answers::acknowledgement(message, errno)
    }
}
