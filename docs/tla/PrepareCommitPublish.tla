----------------------- MODULE PrepareCommitPublish -----------------------
(* Prepare, commit, publish; register, clean up: a document for each message, which its output announces. The steps   *)
(* are the methods of runtime/documents.py: load, invoke, register, prepare, commit, publish                          *)
(* the document, publish, finish, clean up, withdraw; and collect, which the sweeper does. A message that its handler *)
(* refuses by the state has no document, is kept as a letter, and its redelivery is refused too.                      *)
EXTENDS Deliveries

CONSTANTS
    Sweeper,    \* whether there is a sweeper
    Refusing,   \* the messages that are refused while nothing has changed the state
    Races       \* how many attempts may begin whatever the others do: from then on back-off keeps them apart

VARIABLES
    entity,     \* the rows: business state, outbox, intents (latest and lost), letters, a version in place of the ETag
    ends,       \* what became of each delivery that was acknowledged
    effects,    \* the documents that are stored
    commits,    \* the messages in the order in which a write of theirs changed the state: nothing reads it
    published,  \* the outputs that were published: nothing reads it
    attempts,   \* how many ids of attempts were drawn
    sweeper     \* its next step, and the document that it looks at

vars == <<deliveries, entity, ends, effects, commits, published, attempts, sweeper>>
rest == <<ends, commits, published, attempts, sweeper>>

None == 0
Absent == [is |-> "absent", effect |-> None, content |-> None]
Finished == [is |-> "finished", effect |-> None, content |-> None]
Pending(effect, content) == [is |-> "pending", effect |-> effect, content |-> content]

NewEntity ==
    [state |-> <<>>, outbox |-> [m \in Messages |-> Absent], latest |-> None, lost |-> {}, letters |-> {},
     version |-> 0]
Nothing ==
    [entity |-> NewEntity, attempt |-> None, prepared |-> {}, announced |-> None, lost |-> {}, refused |-> FALSE]

(* A document is named for its attempt, and each attempt makes another one: its content stands for its digest. *)
NameOf(attempt) == IF Mistake = "deterministic name" THEN 1 ELSE attempt
Stored(name) == {effect \in effects : effect.name = name}
Unpublished(names) == {effect \in effects : effect.name \in names /\ ~effect.published}

Init ==
    /\ StartDeliveries(Nothing)
    /\ entity = NewEntity
    /\ ends = {}
    /\ effects = {}
    /\ commits = <<>>
    /\ published = {}
    /\ attempts = 0
    /\ sweeper = [step |-> "idle", effect |-> None]

(* Where a worker goes on that has read the entity: one whose own attempt may still commit ends that first. *)
AfterLoad(w, loaded) ==
    CASE loaded.latest # None /\ loaded.latest \in memory[w].prepared -> "give_up"
      [] loaded.outbox[message[w]] = Absent -> "invoke"
      [] OTHER -> "publish_document"

AllLost(row) == [row EXCEPT !.lost = @ \union ({row.latest} \ {None}), !.latest = None, !.version = @ + 1]

(* After a lost race the entity is read again; what this worker has prepared is remembered. *)
Again(w) == GoOn(w, "load", [Nothing EXCEPT !.prepared = memory[w].prepared])

Load(w) ==
    /\ At(w, "load")
    /\ GoOn(w, AfterLoad(w, entity), [memory[w] EXCEPT !.entity = entity])
    /\ UNCHANGED <<entity, effects, rest>>

(* What an earlier attempt of this worker wrote must not take effect late: note that it has lost. *)
GiveUp(w) ==
    /\ At(w, "give_up")
    /\ IF entity.version = memory[w].entity.version
       THEN /\ entity' = AllLost(entity)
            /\ GoOn(w, IF entity.outbox[message[w]] = Absent THEN "invoke" ELSE "publish_document",
                    [memory[w] EXCEPT !.entity = entity'])
       ELSE /\ Again(w)
            /\ UNCHANGED entity
    /\ UNCHANGED <<effects, rest>>

(* Whether a message without an entry is refused: it was before, or it is now, by the state. *)
IsRefused(w) ==
    LET m == message[w]
    IN \/ m \in memory[w].entity.letters
       \/ m \in Refusing /\ memory[w].entity.state = <<>>

Refuse(w) ==
    /\ At(w, "invoke")
    /\ IsRefused(w)
    /\ LET recorded == message[w] \in memory[w].entity.letters
       IN GoOn(w, IF recorded THEN "withdraw" ELSE "store_letter", [memory[w] EXCEPT !.refused = TRUE])
    /\ UNCHANGED <<entity, effects, rest>>

StoreLetter(w) ==
    /\ At(w, "store_letter")
    /\ IF entity.version = memory[w].entity.version
       THEN /\ entity' = IF Mistake = "refusals leave no trace"
                         THEN entity
                         ELSE [entity EXCEPT !.letters = @ \union {message[w]}, !.version = @ + 1]
            /\ GoOn(w, "withdraw", memory[w])
       ELSE /\ Again(w)
            /\ UNCHANGED entity
    /\ UNCHANGED <<effects, rest>>

(* Handle the message and make its document, under a name of this attempt. Each registration refuses the commit of    *)
(* the attempt before it, so two workers could go on refusing each other for ever, if they did not back off.          *)
Invoke(w) ==
    /\ At(w, "invoke")
    /\ ~IsRefused(w)
    /\ attempts < Races \/ \A other \in Workers : step[other] \notin {"register", "prepare", "commit"}
    /\ GoOn(w, IF Mistake = "no register" THEN "prepare" ELSE "register", [memory[w] EXCEPT !.attempt = attempts + 1])
    /\ attempts' = attempts + 1
    /\ UNCHANGED <<entity, ends, effects, commits, published, sweeper>>

(* Note in the entity what this attempt is going to prepare. The attempt that registered before has lost. *)
Register(w) ==
    /\ At(w, "register")
    /\ IF entity.version = memory[w].entity.version
       THEN /\ entity' = [AllLost(entity) EXCEPT !.latest = memory[w].attempt]
            /\ GoOn(w, IF Mistake = "commit before prepare" THEN "commit" ELSE "prepare",
                    [memory[w] EXCEPT !.entity = entity'])
       ELSE /\ Again(w)
            /\ UNCHANGED entity
    /\ UNCHANGED <<effects, rest>>

(* Store the document where nobody sees it. *)
Prepare(w) ==
    /\ At(w, "prepare")
    /\ LET attempt == memory[w].attempt
           next == CASE Mistake = "commit before prepare" -> "publish_document"
                     [] Mistake = "publish before commit" -> "publish_document"
                     [] OTHER -> "commit"
       IN /\ effects' = (effects \ Stored(NameOf(attempt)))
                        \union {[name |-> NameOf(attempt), content |-> attempt, published |-> FALSE]}
          /\ GoOn(w, next, [memory[w] EXCEPT !.prepared = @ \union {attempt}])
    /\ UNCHANGED <<entity, rest>>

Committed(w) ==
    LET m == message[w]
        entry == Pending(NameOf(memory[w].attempt), memory[w].attempt)
    IN [entity EXCEPT !.state = Append(@, m), !.outbox[m] = entry, !.latest = None, !.version = @ + 1]

(* Write the state, the output, and which document counts, if nobody wrote since this attempt registered. *)
Commit(w) ==
    /\ At(w, "commit")
    /\ IF entity.version = memory[w].entity.version
       THEN /\ entity' = Committed(w)
            /\ commits' = Append(commits, message[w])
            /\ GoOn(w, IF Mistake = "commit before prepare" THEN "prepare" ELSE "publish_document",
                    [memory[w] EXCEPT !.entity = entity'])
       ELSE /\ Again(w)
            /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<ends, effects, published, attempts, sweeper>>

(* The commit takes effect and its answer is lost: the worker lives, and reads again. Deletes nothing. *)
CommitWithoutAnswer(w) ==
    /\ At(w, "commit")
    /\ crashes > 0
    /\ entity.version = memory[w].entity.version
    /\ crashes' = crashes - 1
    /\ entity' = Committed(w)
    /\ commits' = Append(commits, message[w])
    /\ effects' = IF Mistake = "clean up after a lost answer"
                  THEN effects \ Unpublished({NameOf(memory[w].attempt)})
                  ELSE effects
    /\ step' = [step EXCEPT ![w] = "load"]
    /\ memory' = [memory EXCEPT ![w] = [Nothing EXCEPT !.prepared = memory[w].prepared]]
    /\ UNCHANGED <<inFlight, message, ends, published, attempts, sweeper>>

(* Make the document of the entry visible, if it is there. *)
PublishDocument(w) ==
    /\ At(w, "publish_document")
    /\ LET entry == memory[w].entity.outbox[message[w]]
           early == Mistake = "publish before commit" /\ entry = Absent
           names == IF early THEN {NameOf(memory[w].attempt)}
                    ELSE IF entry.is = "pending" THEN {entry.effect} ELSE {}
           visible == {[effect EXCEPT !.published = TRUE] : effect \in Unpublished(names)}
       IN /\ effects' = (effects \ Unpublished(names)) \union visible
          /\ GoOn(w, IF early THEN "commit" ELSE "publish", [memory[w] EXCEPT !.announced = entry.effect])
    /\ UNCHANGED <<entity, rest>>

Publish(w) ==
    /\ At(w, "publish")
    /\ LET m == message[w]
           entry == memory[w].entity.outbox[m]
           output == [message |-> m, effect |-> entry.effect, content |-> entry.content]
       IN published' = IF entry.is = "pending" THEN published \union {output} ELSE published
    /\ GoOn(w, "finish", memory[w])
    /\ UNCHANGED <<entity, ends, effects, commits, attempts, sweeper>>

(* An update is tried again until nobody came in between; it gives the entity as it is then. *)
Finish(w) ==
    /\ At(w, "finish")
    /\ LET m == message[w]
       IN entity' = IF entity.outbox[m].is = "pending"
                    THEN [entity EXCEPT !.outbox[m] = Finished, !.version = @ + 1]
                    ELSE entity
    /\ GoOn(w, "clean_up", [memory[w] EXCEPT !.entity = entity', !.lost = entity'.lost])
    /\ UNCHANGED <<effects, rest>>

(* Delete what attempts that lost have prepared, one after another, ... *)
CleanUp(w) ==
    /\ At(w, "clean_up")
    /\ LET lost == memory[w].lost
           attempt == CHOOSE each \in lost : TRUE
       IN IF lost = {}
          THEN /\ GoOn(w, "forget_intents", memory[w])
               /\ UNCHANGED effects
          ELSE /\ effects' = effects \ Unpublished({NameOf(attempt)})
               /\ GoOn(w, "clean_up", [memory[w] EXCEPT !.lost = @ \ {attempt}])
    /\ UNCHANGED <<entity, rest>>

(* ... and forget that they did. *)
ForgetIntents(w) ==
    /\ At(w, "forget_intents")
    /\ LET cleaned == memory[w].entity.lost
       IN entity' = IF entity.lost \intersect cleaned # {}
                    THEN [entity EXCEPT !.lost = @ \ cleaned, !.version = @ + 1]
                    ELSE entity
    /\ GoOn(w, "withdraw", memory[w])
    /\ UNCHANGED <<effects, rest>>

(* Delete what this worker has prepared in attempts that lost, also if others have cleaned up before that. *)
Withdraw(w) ==
    /\ At(w, "withdraw")
    /\ LET names == {NameOf(attempt) : attempt \in memory[w].prepared} \ {memory[w].announced}
       IN effects' = effects \ Unpublished(names)
    /\ GoOn(w, "acknowledge", memory[w])
    /\ UNCHANGED <<entity, rest>>

(* The sweeper lists a document that is not published, then reads the entity, and deletes the document if the entity  *)
(* does not know it: the three are three calls.                                                                       *)
Knows(name) == name \in {entity.latest} \union entity.lost \union {entity.outbox[m].effect : m \in Messages}

Collect ==
    /\ Sweeper
    /\ \/ \E effect \in effects :
            /\ sweeper.step = "idle" /\ ~effect.published
            /\ sweeper' = [step |-> "look", effect |-> effect.name]
            /\ UNCHANGED effects
       \/ /\ sweeper.step = "look"
          /\ sweeper' = IF Knows(sweeper.effect)
                        THEN [step |-> "idle", effect |-> None] ELSE [sweeper EXCEPT !.step = "delete"]
          /\ UNCHANGED effects
       \/ /\ sweeper.step = "delete"
          /\ effects' = effects \ Unpublished({sweeper.effect})
          /\ sweeper' = [step |-> "idle", effect |-> None]
    /\ UNCHANGED <<deliveries, entity, ends, commits, published, attempts>>

Tell(w) ==
    /\ Acknowledge(w, Nothing)
    /\ ends' = ends \union {[message |-> message[w], refused |-> memory[w].refused]}

Step(w) ==
    \/ /\ \/ \E m \in Messages : Take(w, m, "load") /\ UNCHANGED ends
          \/ Tell(w)
       /\ UNCHANGED <<entity, effects, commits, published, attempts, sweeper>>
    \/ Load(w)
    \/ GiveUp(w)
    \/ Refuse(w)
    \/ StoreLetter(w)
    \/ Invoke(w)
    \/ Register(w)
    \/ Prepare(w)
    \/ Commit(w)
    \/ PublishDocument(w)
    \/ Publish(w)
    \/ Finish(w)
    \/ CleanUp(w)
    \/ ForgetIntents(w)
    \/ Withdraw(w)

AtRest == Quiescent /\ ~ENABLED Collect

Next ==
    \/ \E w \in Workers : Step(w)
    \/ Collect
    \/ \E w \in Workers : CommitWithoutAnswer(w)
    \/ \E w \in Workers : Crash(w, Nothing) /\ UNCHANGED <<entity, effects, rest>>
    \/ AtRest /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ WF_vars(Collect) /\ \A w \in Workers : WF_vars(Step(w))

AtMostOneStateChange == \A m \in Messages : Count(commits, m) <= 1

(* No write overwrites what another message did. *)
NoLostUpdate == entity.state = commits

(* Nothing is visible before the commit: neither outputs, nor documents other than those that were committed. *)
NoGhost ==
    /\ \A output \in published : Count(commits, output.message) > 0
    /\ \A effect \in effects : effect.published =>
        \/ \E m \in Messages : entity.outbox[m].effect = effect.name
        \/ \E output \in published : output.effect = effect.name

(* What is committed was stored before. *)
PreparedBeforeCommit ==
    \A m \in Messages : entity.outbox[m].is = "pending" => Stored(entity.outbox[m].effect) # {}

NoLost ==
    Quiescent => \A m \in Messages \ entity.letters :
        /\ Count(commits, m) > 0
        /\ \E output \in published : output.message = m

(* All copies of an output announce one document, which is visible, and stays as it was announced. *)
ConsistentOutput ==
    /\ \A one, other \in published : one.message = other.message => one = other
    /\ \A output \in published :
        [name |-> output.effect, content |-> output.content, published |-> TRUE] \in effects

(* In the end all documents are published, and there is nothing to finish or to clean up. *)
NoGarbage ==
    AtRest =>
        /\ \A effect \in effects : effect.published
        /\ entity.latest = None /\ entity.lost = {}
        /\ \A m \in Messages \ entity.letters : entity.outbox[m] = Finished

(* All deliveries of a message end alike: what was refused once is refused for good. *)
AttemptsAgree == \A one, other \in ends : one.message = other.message => one = other

EveryMessageIsAcknowledged == <>[]AtRest
============================================================================
