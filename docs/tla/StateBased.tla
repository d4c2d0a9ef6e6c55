---------------------------- MODULE StateBased ----------------------------
(* State-based consistent messaging: load, invoke, store, publish. The steps are the methods of                      *)
(* runtime/algorithms/state_based/algorithm.py. A duplicate is handled again on the version just before its own, with the*)
(* context recorded then, and stores nothing. A message that its handler refuses by the state is kept as a letter,    *)
(* and its redelivery is refused too, whatever the state has become.                                                  *)
EXTENDS Deliveries

CONSTANTS
    Readers,    \* the messages that change no state, and whose outputs tell what they saw
    Refusing    \* the messages that are refused while nothing has changed the state

VARIABLES
    log,        \* the versions of one stream, each with its message and the context captured when it was made
    letters,    \* the messages that were refused, in rows beside the versions
    ends,       \* what became of each delivery that was acknowledged
    published,  \* the outputs that were published
    clock       \* a time, of which no two are equal

vars == <<deliveries, log, letters, ends, published, clock>>

NoOutput == [message |-> NoMessage, id |-> <<>>, before |-> <<>>, context |-> 0]
Nothing == [stream |-> <<>>, letters |-> {}, refused |-> FALSE, output |-> NoOutput, context |-> 0]

Init ==
    /\ StartDeliveries(Nothing)
    /\ log = <<>>
    /\ letters = {}
    /\ ends = {}
    /\ published = {}
    /\ clock = 1

(* The state after some versions: which messages changed it, in their order. So no two messages commute. *)
State(stream) ==
    LET messages == [i \in 1..Len(stream) |-> stream[i].message]
        Changes(m) == m \notin Readers
    IN SelectSeq(messages, Changes)

VersionsOf(stream, m) == {i \in 1..Len(stream) : stream[i].message = m}

LoadState(w) ==
    /\ At(w, "load_state")
    /\ GoOn(w, "invoke_handlers", [Nothing EXCEPT !.stream = log, !.letters = letters])
    /\ UNCHANGED <<log, letters, ends, published, clock>>

(* Whether the message of a worker is refused: it was before, or it is new, and refused by the state. *)
IsRefused(w) ==
    LET m == message[w]
        stream == memory[w].stream
    IN \/ m \in memory[w].letters
       \/ m \in Refusing /\ VersionsOf(stream, m) = {} /\ State(stream) = <<>>

Refuse(w) ==
    /\ At(w, "invoke_handlers")
    /\ IsRefused(w)
    /\ LET recorded == message[w] \in memory[w].letters \/ Mistake = "refusals leave no trace"
       IN GoOn(w, IF recorded THEN "acknowledge" ELSE "store_state", [memory[w] EXCEPT !.refused = TRUE])
    /\ UNCHANGED <<log, letters, ends, published, clock>>

InvokeHandlers(w) ==
    /\ At(w, "invoke_handlers")
    /\ ~IsRefused(w)
    /\ LET m == message[w]
           stream == memory[w].stream
           duplicate == VersionsOf(stream, m) # {}
           version == CHOOSE i \in VersionsOf(stream, m) : TRUE
           before == IF duplicate /\ Mistake # "latest state on a duplicate"
                     THEN State(SubSeq(stream, 1, version - 1))
                     ELSE State(stream)
           context == IF duplicate /\ Mistake # "context not recorded" THEN stream[version].context ELSE clock
           id == IF Mistake = "ids not seeded" THEN <<m, clock>> ELSE <<m>>
           output == [message |-> m, id |-> id, before |-> before, context |-> context]
           next == IF duplicate \/ Mistake = "publish before append" THEN "publish" ELSE "store_state"
       IN /\ GoOn(w, next, [memory[w] EXCEPT !.output = output, !.context = context])
          /\ clock' = IF duplicate /\ Mistake = "none" THEN clock ELSE clock + 1
    /\ UNCHANGED <<log, letters, ends, published>>

(* Append a version or a letter if nobody did since the load, else read again. *)
StoreState(w) ==
    /\ At(w, "store_state")
    /\ LET m == message[w]
           stored == IF Mistake = "publish before append" THEN "acknowledge" ELSE "publish"
           same == Len(log) = Len(memory[w].stream) /\ letters = memory[w].letters
           unchanged == same \/ Mistake = "append without CAS"
           left_out == Mistake = "record only on change" /\ m \in Readers
       IN IF left_out \/ ~unchanged
          THEN /\ GoOn(w, IF left_out THEN stored ELSE "load_state", memory[w])
               /\ UNCHANGED <<log, letters>>
          ELSE IF memory[w].refused
          THEN /\ GoOn(w, "acknowledge", memory[w])
               /\ letters' = letters \union {m}
               /\ UNCHANGED log
          ELSE /\ GoOn(w, stored, memory[w])
               /\ log' = Append(log, [message |-> m, context |-> memory[w].context])
               /\ UNCHANGED letters
    /\ UNCHANGED <<ends, published, clock>>

Publish(w) ==
    /\ At(w, "publish")
    /\ published' = published \union {memory[w].output}
    /\ LET duplicate == VersionsOf(memory[w].stream, message[w]) # {}
           next == IF Mistake = "publish before append" /\ ~duplicate THEN "store_state" ELSE "acknowledge"
       IN GoOn(w, next, memory[w])
    /\ UNCHANGED <<log, letters, ends, clock>>

Tell(w) ==
    /\ Acknowledge(w, Nothing)
    /\ ends' = ends \union {[message |-> message[w], refused |-> memory[w].refused]}

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, "load_state") /\ UNCHANGED ends
          \/ Tell(w)
       /\ UNCHANGED <<log, letters, published, clock>>
    \/ LoadState(w)
    \/ Refuse(w)
    \/ InvokeHandlers(w)
    \/ StoreState(w)
    \/ Publish(w)

Next ==
    \/ \E w \in Workers : Step(w)
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<log, letters, ends, published, clock>>
    \/ Quiescent /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Workers : WF_vars(Step(w))

(* A message changes the state at most once: it has at most one version. *)
AtMostOneStateChange == \A m \in Messages : Cardinality(VersionsOf(log, m)) <= 1

(* What is published speaks of a version that is stored. *)
NoGhost ==
    \A output \in published : \E i \in VersionsOf(log, output.message) :
        /\ output.before = State(SubSeq(log, 1, i - 1))
        /\ output.context = log[i].context

(* In the end every message that was not refused is stored, and what it has to say is published. *)
NoLost ==
    Quiescent => \A m \in Messages \ letters :
        /\ VersionsOf(log, m) # {}
        /\ \E output \in published : output.message = m

(* All published copies of an output have one id and one body, and no two outputs have one id. *)
ConsistentOutput ==
    \A one, other \in published : (one.message = other.message \/ one.id = other.id) => one = other

(* All deliveries of a message end alike: what was refused once is refused for good. *)
AttemptsAgree == \A one, other \in ends : one.message = other.message => one = other

EveryMessageIsAcknowledged == <>[]Quiescent
============================================================================
