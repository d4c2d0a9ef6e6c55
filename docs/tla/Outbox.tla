------------------------------ MODULE Outbox ------------------------------
(* The outbox: business state, outgoing messages and ids of processed messages in one row. The steps are those of     *)
(* runtime/algorithms/outbox/algorithm.py and outbox.py: load, invoke, store, publish, finish.                           *)
EXTENDS Deliveries

VARIABLES
    entity,     \* the row: business state, outbox, and a version in place of the ETag
    commits,    \* the messages in the order in which a write of theirs changed the state: nothing reads it
    published,  \* the outputs that were published
    clock       \* a time, of which no two are equal: the handler is not deterministic

vars == <<deliveries, entity, commits, published, clock>>

(* An entry is absent, pending (with its output) or finished. *)
Absent == [is |-> "absent", context |-> 0]
Pending(context) == [is |-> "pending", context |-> context]
Finished == [is |-> "finished", context |-> 0]

NewEntity == [state |-> <<>>, outbox |-> [m \in Messages |-> Absent], version |-> 0]
Nothing == [entity |-> NewEntity, changed |-> NewEntity]

Output(m, entry) == [message |-> m, context |-> entry.context]

Init ==
    /\ StartDeliveries(Nothing)
    /\ entity = NewEntity
    /\ commits = <<>>
    /\ published = {}
    /\ clock = 1

Load(w) ==
    /\ At(w, "load")
    /\ LET next == IF entity.outbox[message[w]] = Absent THEN "invoke" ELSE "publish"
       IN GoOn(w, next, [entity |-> entity, changed |-> entity])
    /\ UNCHANGED <<entity, commits, published, clock>>

Invoke(w) ==
    /\ At(w, "invoke")
    /\ LET m == message[w]
           changed == [memory[w].entity EXCEPT !.state = Append(@, m), !.outbox[m] = Pending(clock)]
           next == IF Mistake = "publish before store" THEN "publish" ELSE "store"
       IN GoOn(w, next, [memory[w] EXCEPT !.changed = changed])
    /\ clock' = clock + 1
    /\ UNCHANGED <<entity, commits, published>>

(* Write state and entry together if nobody wrote since the load, else read again. *)
Store(w) ==
    /\ At(w, "store")
    /\ LET next == IF Mistake = "publish before store" THEN "finish" ELSE "publish"
       IN IF entity.version = memory[w].entity.version \/ Mistake = "no CAS"
          THEN /\ entity' = [memory[w].changed EXCEPT !.version = entity.version + 1]
               /\ commits' = Append(commits, message[w])
               /\ GoOn(w, next, [memory[w] EXCEPT !.entity = entity'])
          ELSE /\ GoOn(w, "load", Nothing)
               /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<published, clock>>

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
    /\ UNCHANGED <<entity, commits, clock>>

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
    /\ UNCHANGED <<commits, published, clock>>

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, "load")
          \/ Acknowledge(w, Nothing)
       /\ UNCHANGED <<entity, commits, published, clock>>
    \/ Load(w)
    \/ Invoke(w)
    \/ Store(w)
    \/ Publish(w)
    \/ Finish(w)

Next ==
    \/ \E w \in Workers : Step(w)
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<entity, commits, published, clock>>
    \/ Quiescent /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Workers : WF_vars(Step(w))

AtMostOneStateChange == \A m \in Messages : Count(commits, m) <= 1

(* No write overwrites what another message did. *)
NoLostUpdate == entity.state = commits

NoGhost == \A output \in published : Count(commits, output.message) > 0

NoLost ==
    Quiescent => \A m \in Messages :
        /\ Count(commits, m) > 0
        /\ \E output \in published : output.message = m

ConsistentOutput == \A one, other \in published : one.message = other.message => one = other

(* In the end no entry waits for anything. *)
NoGarbage == Quiescent => \A m \in Messages : entity.outbox[m] = Finished

EveryMessageIsAcknowledged == <>[]Quiescent
============================================================================
