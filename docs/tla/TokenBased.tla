---------------------------- MODULE TokenBased ----------------------------
(* Token-based de-duplication: a message may be processed only while its token exists. The steps are those of         *)
(* runtime/algorithms/outbox/algorithm.py: load, check the token, invoke, store, create tokens, checkpoint, publish,  *)
(* delete the token, clean up. Each message has one output, which goes to a receiver that processes by tokens too.    *)
(* A message that its handler refuses by the state is kept as a letter, and its redelivery is refused too: its token  *)
(* stays, for a redrive.                                                                                              *)
EXTENDS Deliveries

CONSTANT Refusing   \* the messages that are refused while nothing has changed the state

VARIABLES
    entity,     \* the rows: business state, outbox, letters, and a version in place of the ETag
    ends,       \* what became of each delivery that was acknowledged
    tokens,     \* the tokens that exist, each named by the message that sends it on and the attempt that created it
    commits,    \* the messages in the order in which a write of theirs changed the state: nothing reads it
    published,  \* the outputs that were published, with their tokens: nothing reads it
    arriving,   \* the outputs on their way to the receiver
    received,   \* the outputs that the receiver processed, in order: nothing reads it
    attempts    \* how many ids of attempts were drawn

vars == <<deliveries, entity, ends, tokens, commits, published, arriving, received, attempts>>
rest == <<ends, commits, published, arriving, received>>

None == 0                              \* no attempt; also that of the token which the sender of a message issued
Incoming(m) == <<m, None>>             \* the token that a message comes with
Absent == [made |-> None, attempts |-> {}, committed |-> None]
NewEntity == [state |-> <<>>, outbox |-> [m \in Messages |-> Absent], letters |-> {}, version |-> 0]
Nothing == [entity |-> NewEntity, attempt |-> None, found |-> FALSE, refused |-> FALSE]

Init ==
    /\ StartDeliveries(Nothing)
    /\ entity = NewEntity
    /\ ends = {}
    /\ tokens = {Incoming(m) : m \in Messages}
    /\ commits = <<>>
    /\ published = {}
    /\ arriving = {}
    /\ received = <<>>
    /\ attempts = 0

TokenFirst == Mistake = "check the token first"
FirstDraft == Mistake = "tokens re-created"
Committing == Mistake \notin {"tokens re-created", "no checkpoint"}
First == IF TokenFirst THEN "exists" ELSE "load"

(* What follows when the entity is loaded and the token was looked for. *)
AfterBoth(w, loaded, found) ==
    LET entry == loaded.outbox[message[w]]
    IN CASE ~found /\ entry = Absent -> "acknowledge"
         [] ~found -> "return_early"
         [] entry = Absent -> "invoke"
         [] OTHER -> "register"

Load(w) ==
    /\ At(w, "load")
    /\ LET next == IF TokenFirst THEN AfterBoth(w, entity, memory[w].found) ELSE "exists"
       IN GoOn(w, next, [Nothing EXCEPT !.entity = entity, !.found = memory[w].found])
    /\ UNCHANGED <<entity, tokens, attempts, rest>>

Exists(w) ==
    /\ At(w, "exists")
    /\ LET found == Incoming(message[w]) \in tokens
           next == IF TokenFirst THEN "load" ELSE AfterBoth(w, memory[w].entity, found)
       IN GoOn(w, next, [memory[w] EXCEPT !.found = found])
    /\ UNCHANGED <<entity, tokens, attempts, rest>>

(* The token is gone and an entry is left: clean up, or read again when it is not known yet who lost. *)
ReturnEarly(w) ==
    /\ At(w, "return_early")
    /\ LET decided == memory[w].entity.outbox[message[w]].committed # None \/ ~Committing
       IN GoOn(w, IF decided THEN "delete_garbage" ELSE First, IF decided THEN memory[w] ELSE Nothing)
    /\ UNCHANGED <<entity, tokens, attempts, rest>>

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
       IN GoOn(w, next, [memory[w] EXCEPT !.refused = TRUE, !.entity.letters = @ \union {m}])
    /\ UNCHANGED <<entity, tokens, attempts, rest>>

(* Handle the message, and register the id of this attempt in the entry. *)
Invoke(w) ==
    /\ At(w, "invoke")
    /\ ~IsRefused(w)
    /\ LET m == message[w]
           attempt == attempts + 1
           entry == [made |-> attempt, attempts |-> {attempt}, committed |-> None]
           changed == [memory[w].entity EXCEPT !.state = Append(@, m), !.outbox[m] = entry]
       IN GoOn(w, "store", [memory[w] EXCEPT !.entity = changed, !.attempt = attempt])
    /\ attempts' = attempts + 1
    /\ UNCHANGED <<entity, tokens, rest>>

(* Write state and entry together, or the letter, if nobody wrote since the load, else begin again. *)
Store(w) ==
    /\ At(w, "store")
    /\ IF entity.version = memory[w].entity.version \/ Mistake = "no CAS"
       THEN /\ entity' = [memory[w].entity EXCEPT !.version = entity.version + 1]
            /\ commits' = IF memory[w].refused THEN commits ELSE Append(commits, message[w])
            /\ GoOn(w, IF memory[w].refused THEN "acknowledge" ELSE "create", [memory[w] EXCEPT !.entity = entity'])
       ELSE /\ GoOn(w, First, Nothing)
            /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<ends, tokens, attempts, published, arriving, received>>

(* Another attempt has stored the message: register the id of this one, unless it is decided whose tokens count. An   *)
(* update is tried again until nobody came in between.                                                                *)
Register(w) ==
    /\ At(w, "register")
    /\ LET m == message[w]
           entry == entity.outbox[m]
           attempt == attempts + 1
           registered == [entity EXCEPT !.outbox[m].attempts = @ \union {attempt}, !.version = @ + 1]
       IN IF entry = Absent \/ entry.committed # None
          THEN /\ GoOn(w, IF entry = Absent THEN "acknowledge" ELSE "publish", [memory[w] EXCEPT !.entity = entity])
               /\ UNCHANGED <<entity, attempts>>
          ELSE /\ entity' = IF Mistake = "attempts not registered" THEN entity ELSE registered
               /\ attempts' = attempt
               /\ GoOn(w, "create", [memory[w] EXCEPT !.entity = entity', !.attempt = attempt])
    /\ UNCHANGED <<tokens, rest>>

(* Create the token of the output, under the id of this attempt, while the incoming token is there. *)
Create(w) ==
    /\ At(w, "create")
    /\ LET m == message[w]
           attempt == IF FirstDraft THEN memory[w].entity.outbox[m].made ELSE memory[w].attempt
           allowed == Incoming(m) \in tokens \/ Mistake = "late tokens not refused"
       IN IF allowed
          THEN /\ tokens' = tokens \union {<<m, attempt>>}
               /\ GoOn(w, IF Committing THEN "checkpoint" ELSE "publish", [memory[w] EXCEPT !.attempt = attempt])
          ELSE /\ GoOn(w, First, Nothing)
               /\ UNCHANGED tokens
    /\ UNCHANGED <<entity, attempts, rest>>

(* Write into the entry that the tokens of this attempt count, unless those of another do. *)
Checkpoint(w) ==
    /\ At(w, "checkpoint")
    /\ LET m == message[w]
           entry == entity.outbox[m]
           open == entry # Absent /\ entry.committed = None
       IN /\ entity' = IF open
                       THEN [entity EXCEPT !.outbox[m].committed = memory[w].attempt, !.version = @ + 1]
                       ELSE entity
          /\ GoOn(w, IF entry = Absent THEN "acknowledge" ELSE "publish", [memory[w] EXCEPT !.entity = entity'])
    /\ UNCHANGED <<tokens, attempts, rest>>

Publish(w) ==
    /\ At(w, "publish")
    /\ LET m == message[w]
           entry == memory[w].entity.outbox[m]
           attempt == IF Committing THEN entry.committed ELSE memory[w].attempt
           output == [message |-> m, body |-> entry.made, token |-> <<m, attempt>>]
       IN /\ published' = published \union {output}
          /\ arriving' = arriving \union {output}
    /\ GoOn(w, "delete", memory[w])
    /\ UNCHANGED <<entity, ends, tokens, commits, received, attempts>>

(* Delete the token of the message. From here on nobody processes it, and nobody creates tokens for its output. *)
Delete(w) ==
    /\ At(w, "delete")
    /\ tokens' = tokens \ {Incoming(message[w])}
    /\ GoOn(w, "delete_garbage", memory[w])
    /\ UNCHANGED <<entity, attempts, rest>>

(* Delete the tokens of attempts that lost, one after another. *)
DeleteGarbage(w) ==
    /\ At(w, "delete_garbage")
    /\ LET m == message[w]
           entry == memory[w].entity.outbox[m]
           lost == IF Committing THEN entry.attempts \ {entry.committed} ELSE {}
           less == [memory[w] EXCEPT !.entity.outbox[m].attempts = @ \ {CHOOSE attempt \in lost : TRUE}]
       IN IF lost = {}
          THEN /\ GoOn(w, "forget", memory[w])
               /\ UNCHANGED tokens
          ELSE /\ tokens' = tokens \ {<<m, CHOOSE attempt \in lost : TRUE>>}
               /\ GoOn(w, "delete_garbage", less)
    /\ UNCHANGED <<entity, attempts, rest>>

(* Remove the entry. *)
Forget(w) ==
    /\ At(w, "forget")
    /\ entity' = IF entity.outbox[message[w]] # Absent
                 THEN [entity EXCEPT !.outbox[message[w]] = Absent, !.version = @ + 1]
                 ELSE entity
    /\ GoOn(w, "acknowledge", memory[w])
    /\ UNCHANGED <<tokens, attempts, rest>>

(* The receiver processes an output if its token is there, and deletes the token; else it leaves the output alone. *)
Receive(output) ==
    /\ output \in arriving
    /\ arriving' = arriving \ {output}
    /\ received' = IF output.token \in tokens THEN Append(received, output.message) ELSE received
    /\ tokens' = tokens \ {output.token}
    /\ UNCHANGED <<deliveries, entity, ends, commits, published, attempts>>

Tell(w) ==
    /\ Acknowledge(w, Nothing)
    /\ ends' = ends \union {[message |-> message[w], refused |-> memory[w].refused]}

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, First) /\ UNCHANGED ends
          \/ Tell(w)
       /\ UNCHANGED <<entity, tokens, commits, published, arriving, received, attempts>>
    \/ Load(w)
    \/ Exists(w)
    \/ ReturnEarly(w)
    \/ Refuse(w)
    \/ Invoke(w)
    \/ Store(w)
    \/ Register(w)
    \/ Create(w)
    \/ Checkpoint(w)
    \/ Publish(w)
    \/ Delete(w)
    \/ DeleteGarbage(w)
    \/ Forget(w)

ReceiveAny == \E output \in arriving : Receive(output)
AtRest == Quiescent /\ arriving = {}

Next ==
    \/ \E w \in Workers : Step(w)
    \/ ReceiveAny
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<entity, tokens, attempts, rest>>
    \/ AtRest /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(ReceiveAny) /\ \A w \in Workers : WF_vars(Step(w))

(* A message changes the state at most once, and so does its output at the receiver. *)
AtMostOneStateChange == \A m \in Messages : Count(commits, m) <= 1 /\ Count(received, m) <= 1

(* No write overwrites what another message did. *)
NoLostUpdate == entity.state = commits

NoGhost == \A output \in published : Count(commits, output.message) > 0

(* In the end every message that was not refused has changed the state, and its output that of the receiver. *)
NoLost == AtRest => \A m \in Messages \ entity.letters : Count(commits, m) > 0 /\ Count(received, m) > 0

(* All copies of an output carry one token and one body. *)
ConsistentOutput == \A one, other \in published : one.message = other.message => one = other

(* In the end no entries are left, and no tokens but those of letters. *)
NoGarbage ==
    AtRest => tokens = {Incoming(m) : m \in entity.letters} /\ entity.outbox = [m \in Messages |-> Absent]

(* All deliveries of a message end alike: what was refused once is refused for good. *)
AttemptsAgree == \A one, other \in ends : one.message = other.message => one = other

EveryMessageIsAcknowledged == <>[]AtRest
============================================================================
