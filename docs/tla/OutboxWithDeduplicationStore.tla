------------------- MODULE OutboxWithDeduplicationStore -------------------
(* The outbox with a separate de-duplication store: the entity forgets a message once the store knows it. The steps   *)
(* are those of runtime/algorithms/outbox/algorithm.py: load, find, invoke, store, publish, add,                      *)
(* forget. A message that its handler refuses by the state is kept as a letter, and its redelivery is refused too.    *)
EXTENDS Deliveries

CONSTANT Refusing   \* the messages that are refused while nothing has changed the state

VARIABLES
    entity,     \* the rows: business state, outbox (0, or the context of an output), letters, a version as the ETag
    known,      \* the messages that the de-duplication store knows
    ends,       \* what became of each delivery that was acknowledged
    commits,    \* the messages in the order in which a write of theirs changed the state: nothing reads it
    published,  \* the outputs that were published
    clock       \* a time, of which no two are equal: the handler is not deterministic

vars == <<deliveries, entity, known, ends, commits, published, clock>>

Absent == 0

NewEntity == [state |-> <<>>, outbox |-> [m \in Messages |-> Absent], letters |-> {}, version |-> 0]
Nothing == [entity |-> NewEntity, changed |-> NewEntity, found |-> FALSE, refused |-> FALSE]

Init ==
    /\ StartDeliveries(Nothing)
    /\ entity = NewEntity
    /\ known = {}
    /\ ends = {}
    /\ commits = <<>>
    /\ published = {}
    /\ clock = 1

StoreFirst == Mistake = "check the store first"
First == IF StoreFirst THEN "find" ELSE "load"

(* What follows when the entity is loaded and the store was asked. *)
AfterBoth(w, loaded, found) ==
    LET entry == loaded.outbox[message[w]]
    IN CASE found /\ (entry = Absent \/ Mistake = "leftover entry kept") -> "acknowledge"
         [] found -> "forget"
         [] entry = Absent -> "invoke"
         [] OTHER -> "publish"

Load(w) ==
    /\ At(w, "load")
    /\ LET next == IF StoreFirst THEN AfterBoth(w, entity, memory[w].found) ELSE "find"
       IN GoOn(w, next, [memory[w] EXCEPT !.entity = entity, !.changed = entity])
    /\ UNCHANGED <<entity, known, ends, commits, published, clock>>

(* Ask the store. It is read strongly consistent: a stale answer may be that a known message is not known. *)
Find(w) ==
    /\ At(w, "find")
    /\ \E found \in {message[w] \in known} \union (IF Mistake = "stale reads" THEN {FALSE} ELSE {}) :
        LET next == IF StoreFirst THEN "load" ELSE AfterBoth(w, memory[w].entity, found)
        IN GoOn(w, next, [memory[w] EXCEPT !.found = found])
    /\ UNCHANGED <<entity, known, ends, commits, published, clock>>

(* Whether a message that neither place knows is refused: it was before, or it is now, by the state. *)
IsRefused(w) ==
    LET m == message[w]
    IN \/ m \in memory[w].entity.letters
       \/ m \in Refusing /\ memory[w].entity.state = <<>>

Refuse(w) ==
    /\ At(w, "invoke")
    /\ IsRefused(w)
    /\ LET m == message[w]
           recorded == m \in memory[w].entity.letters \/ Mistake = "refusals leave no trace"
           next == IF recorded THEN "acknowledge" ELSE "store"
       IN GoOn(w, next, [memory[w] EXCEPT !.refused = TRUE, !.changed.letters = @ \union {m}])
    /\ UNCHANGED <<entity, known, ends, commits, published, clock>>

Invoke(w) ==
    /\ At(w, "invoke")
    /\ ~IsRefused(w)
    /\ LET m == message[w]
           changed == [memory[w].entity EXCEPT !.state = Append(@, m), !.outbox[m] = clock]
       IN GoOn(w, "store", [memory[w] EXCEPT !.changed = changed])
    /\ clock' = clock + 1
    /\ UNCHANGED <<entity, known, ends, commits, published>>

(* Write state and entry together, or the letter, if nobody wrote since the load, else begin again. *)
Store(w) ==
    /\ At(w, "store")
    /\ IF entity.version = memory[w].entity.version \/ Mistake = "no CAS"
       THEN /\ entity' = [memory[w].changed EXCEPT !.version = entity.version + 1]
            /\ commits' = IF memory[w].refused THEN commits ELSE Append(commits, message[w])
            /\ GoOn(w, IF memory[w].refused THEN "acknowledge" ELSE "publish", memory[w])
       ELSE /\ GoOn(w, First, Nothing)
            /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<known, ends, published, clock>>

Publish(w) ==
    /\ At(w, "publish")
    /\ published' = published \union {[message |-> message[w], context |-> memory[w].changed.outbox[message[w]]]}
    /\ GoOn(w, IF Mistake = "forget before add" THEN "forget" ELSE "add", memory[w])
    /\ UNCHANGED <<entity, known, ends, commits, clock>>

Add(w) ==
    /\ At(w, "add")
    /\ known' = known \union {message[w]}
    /\ GoOn(w, IF Mistake = "forget before add" THEN "acknowledge" ELSE "forget", memory[w])
    /\ UNCHANGED <<entity, ends, commits, published, clock>>

(* Remove the entry. An update is tried again until nobody came in between. *)
Forget(w) ==
    /\ At(w, "forget")
    /\ entity' = IF entity.outbox[message[w]] # Absent
                 THEN [entity EXCEPT !.outbox[message[w]] = Absent, !.version = @ + 1]
                 ELSE entity
    /\ GoOn(w, IF Mistake = "forget before add" /\ ~memory[w].found THEN "add" ELSE "acknowledge", memory[w])
    /\ UNCHANGED <<known, ends, commits, published, clock>>

Tell(w) ==
    /\ Acknowledge(w, Nothing)
    /\ ends' = ends \union {[message |-> message[w], refused |-> memory[w].refused]}

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, First) /\ UNCHANGED ends
          \/ Tell(w)
       /\ UNCHANGED <<entity, known, commits, published, clock>>
    \/ Load(w)
    \/ Find(w)
    \/ Refuse(w)
    \/ Invoke(w)
    \/ Store(w)
    \/ Publish(w)
    \/ Add(w)
    \/ Forget(w)

Next ==
    \/ \E w \in Workers : Step(w)
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<entity, known, ends, commits, published, clock>>
    \/ Quiescent /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Workers : WF_vars(Step(w))

AtMostOneStateChange == \A m \in Messages : Count(commits, m) <= 1

(* No write overwrites what another message did. *)
NoLostUpdate == entity.state = commits

(* From the commit on a message is known in at least one place. *)
KnownWithoutAGap == \A m \in Messages : Count(commits, m) > 0 => (entity.outbox[m] # Absent \/ m \in known)

NoGhost == \A output \in published : Count(commits, output.message) > 0

NoLost ==
    Quiescent => \A m \in Messages \ entity.letters :
        /\ Count(commits, m) > 0
        /\ \E output \in published : output.message = m

ConsistentOutput == \A one, other \in published : one.message = other.message => one = other

(* In the end the entity has forgotten every message, and the store knows them all but those that were refused. *)
NoGarbage ==
    Quiescent => entity.outbox = [m \in Messages |-> Absent] /\ known = Messages \ entity.letters

(* All deliveries of a message end alike: what was refused once is refused for good. *)
AttemptsAgree == \A one, other \in ends : one.message = other.message => one = other

EveryMessageIsAcknowledged == <>[]Quiescent
============================================================================
