------------------------------ MODULE Outbox ------------------------------
(* The outbox: business state, outgoing messages and ids of processed messages in one row. The steps are those of     *)
(* runtime/algorithms/outbox/algorithm.py and outbox.py: load, invoke, store, publish, finish.                        *)
(* A message that its handler refuses by the state is kept as a letter, and its redelivery is refused too.            *)
EXTENDS Deliveries

CONSTANT Refusing   \* the messages that are refused while nothing has changed the state

VARIABLES
    entity,     \* the rows: business state, outbox, letters, and a version in place of the ETag
    ends,       \* what became of each delivery that was acknowledged
    commits,    \* the messages in the order in which a write of theirs changed the state: nothing reads it
    published,  \* the outputs that were published
    clock       \* a time, of which no two are equal: the handler is not deterministic

vars == <<deliveries, entity, ends, commits, published, clock>>

(* An entry is absent, pending (with its output) or finished. *)
Absent == [is |-> "absent", context |-> 0]
Pending(context) == [is |-> "pending", context |-> context]
Finished == [is |-> "finished", context |-> 0]

NewEntity == [state |-> <<>>, outbox |-> [m \in Messages |-> Absent], letters |-> {}, version |-> 0]
Nothing == [entity |-> NewEntity, changed |-> NewEntity, refused |-> FALSE]

Output(m, entry) == [message |-> m, context |-> entry.context]

Init ==
    /\ StartDeliveries(Nothing)
    /\ entity = NewEntity
    /\ ends = {}
    /\ commits = <<>>
    /\ published = {}
    /\ clock = 1

Load(w) ==
    /\ At(w, "load")
    /\ LET next == IF entity.outbox[message[w]] = Absent THEN "invoke" ELSE "publish"
       IN GoOn(w, next, [Nothing EXCEPT !.entity = entity, !.changed = entity])
    /\ UNCHANGED <<entity, ends, commits, published, clock>>

(* Whether a message without an entry is refused: it was before, or it is now, by the state. *)
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
    /\ UNCHANGED <<entity, ends, commits, published, clock>>

Invoke(w) ==
    /\ At(w, "invoke")
    /\ ~IsRefused(w)
    /\ LET m == message[w]
           changed == [memory[w].entity EXCEPT !.state = Append(@, m), !.outbox[m] = Pending(clock)]
           next == IF Mistake = "publish before store" THEN "publish" ELSE "store"
       IN GoOn(w, next, [memory[w] EXCEPT !.changed = changed])
    /\ clock' = clock + 1
    /\ UNCHANGED <<entity, ends, commits, published>>

(* Write state and entry, or the letter, if nobody wrote since the load, else read again. *)
Store(w) ==
    /\ At(w, "store")
    /\ LET stored == IF Mistake = "publish before store" THEN "finish" ELSE "publish"
           refused == memory[w].refused
           next == IF refused THEN "acknowledge" ELSE stored
       IN IF entity.version = memory[w].entity.version \/ Mistake = "no CAS"
          THEN /\ entity' = [memory[w].changed EXCEPT !.version = entity.version + 1]
               /\ commits' = IF refused THEN commits ELSE Append(commits, message[w])
               /\ GoOn(w, next, [memory[w] EXCEPT !.entity = entity'])
          ELSE /\ GoOn(w, "load", Nothing)
               /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<ends, published, clock>>

(* Publish what the entry still has, which is nothing once the message is finished. *)
Publish(w) ==
    /\ At(w, "publish")
    /\ LET m == message[w]
           entry == memory[w].changed.outbox[m]
           stored == memory[w].entity.outbox[m] # Absent
       IN IF Mistake = "finish before publish" /\ entry.is = "pending" /\ entity.outbox[m].is = "pending"
          THEN /\ GoOn(w, "finish", memory[w])
               /\ UNCHANGED published
          ELSE /\ published' = IF entry.is = "pending" THEN published \union {Output(m, entry)} ELSE published
               /\ GoOn(w, IF stored THEN "finish" ELSE "store", memory[w])
    /\ UNCHANGED <<entity, ends, commits, clock>>

(* Write the entry without its output, and keep the id. An update is tried again until nobody came in between. *)
Finish(w) ==
    /\ At(w, "finish")
    /\ LET m == message[w]
           finished == IF Mistake = "id not kept" THEN Absent ELSE Finished
           next == IF Mistake = "finish before publish" /\ entity.outbox[m].is = "pending"
                   THEN "publish" ELSE "acknowledge"
       IN /\ entity' = IF entity.outbox[m].is = "pending"
                       THEN [entity EXCEPT !.outbox[m] = finished, !.version = @ + 1]
                       ELSE entity
          /\ GoOn(w, next, memory[w])
    /\ UNCHANGED <<ends, commits, published, clock>>

Tell(w) ==
    /\ Acknowledge(w, Nothing)
    /\ ends' = ends \union {[message |-> message[w], refused |-> memory[w].refused]}

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, "load") /\ UNCHANGED ends
          \/ Tell(w)
       /\ UNCHANGED <<entity, commits, published, clock>>
    \/ Load(w)
    \/ Refuse(w)
    \/ Invoke(w)
    \/ Store(w)
    \/ Publish(w)
    \/ Finish(w)

Next ==
    \/ \E w \in Workers : Step(w)
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<entity, ends, commits, published, clock>>
    \/ Quiescent /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Workers : WF_vars(Step(w))

AtMostOneStateChange == \A m \in Messages : Count(commits, m) <= 1

(* No write overwrites what another message did. *)
NoLostUpdate == entity.state = commits

NoGhost == \A output \in published : Count(commits, output.message) > 0

NoLost ==
    Quiescent => \A m \in Messages \ entity.letters :
        /\ Count(commits, m) > 0
        /\ \E output \in published : output.message = m

ConsistentOutput == \A one, other \in published : one.message = other.message => one = other

(* In the end no entry waits for anything. *)
NoGarbage == Quiescent => \A m \in Messages \ entity.letters : entity.outbox[m] = Finished

(* All deliveries of a message end alike: what was refused once is refused for good. *)
AttemptsAgree == \A one, other \in ends : one.message = other.message => one = other

EveryMessageIsAcknowledged == <>[]Quiescent
============================================================================
