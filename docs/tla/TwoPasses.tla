----------------------------- MODULE TwoPasses -----------------------------
(* Batches with an outbox and a de-duplication store, of which all hold one message. The steps are those of           *)
(* runtime/algorithms/outbox/algorithm.py and of the driver in runtime/spark/batch.py: load, find, invoke, store, put the*)
(* outcomes in place, commit the round; and only then the second pass, load, add, forget; publish. A message that its  *)
(* handler refuses by the state is kept as a letter, and every attempt finds it refused, whatever the state is by then. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Batches,    \* their names
    Workers,    \* how many attempts may run at once, of one batch or of several
    Crashes,    \* how many of them die at most
    Refusing,   \* whether the message is refused until a deposit was made, which is another message
    Mistake     \* what is done wrongly, or "none"

VARIABLES
    step,       \* where each worker is, "idle" when it has no batch
    batch,      \* the batch that it runs
    memory,     \* what it has read: the entity, and what it is going to write
    crashes,    \* how many may still die
    entity,     \* the row: how often the message changed the state, its entry, a version in place of the ETag
    commits,    \* how often a write of the message's was carried out: nothing reads it
    known,      \* whether the de-duplication store knows the message
    told,       \* what the attempts at each batch have said of the message: nothing reads it
    folder,     \* what is in place of each batch: nothing, or what it says of the message, and the outputs
    ledger,     \* how far each batch has come: "started", "committed" or "published"
    clock       \* a time, of which no two are equal: the handler is not deterministic

vars == <<step, batch, memory, crashes, entity, commits, known, told, folder, ledger, clock>>

Nobody == "nobody"
Absent == [context |-> 0, batch |-> Nobody]
NewEntity == [changes |-> 0, deposited |-> FALSE, letter |-> FALSE, entry |-> Absent, version |-> 0]
NotThere == [status |-> "none", outputs |-> {}]
Nothing == [entity |-> NewEntity, changed |-> NewEntity, refused |-> FALSE]

Init ==
    /\ step = [w \in Workers |-> "idle"]
    /\ batch = [w \in Workers |-> Nobody]
    /\ memory = [w \in Workers |-> Nothing]
    /\ crashes = Crashes
    /\ entity = NewEntity
    /\ commits = 0
    /\ known = FALSE
    /\ told = [b \in Batches |-> {}]
    /\ folder = [b \in Batches |-> NotThere]
    /\ ledger = [b \in Batches |-> "started"]
    /\ clock = 1

At(w, name) == step[w] = name
GoOn(w, name, remembered) ==
    /\ step' = [step EXCEPT ![w] = name]
    /\ memory' = [memory EXCEPT ![w] = remembered]
    /\ UNCHANGED <<batch, crashes>>

(* Run a batch, for the first time or again. What is in place is not handled again. *)
Begin(w, b) ==
    /\ At(w, "idle")
    /\ ledger[b] # "published"
    /\ batch' = [batch EXCEPT ![w] = b]
    /\ step' = [step EXCEPT ![w] =
                    IF ledger[b] = "committed" THEN "load again"
                    ELSE IF folder[b] # NotThere THEN "commit" ELSE "load"]
    /\ UNCHANGED <<commits, memory, crashes, entity, known, told, folder, ledger, clock>>

Load(w) ==
    /\ At(w, "load")
    /\ GoOn(w, "find", [entity |-> entity, changed |-> entity, refused |-> FALSE])
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger, clock>>

Find(w) ==
    /\ At(w, "find")
    /\ LET next == IF known THEN "tell"
                   ELSE IF memory[w].entity.entry = Absent THEN "invoke" ELSE "tell"
       IN GoOn(w, next, memory[w])
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger, clock>>

(* Whether a message that neither place knows is refused: it was before, or it is now, by the state. *)
IsRefused(w) == memory[w].entity.letter \/ (Refusing /\ ~memory[w].entity.deposited)

Refuse(w) ==
    /\ At(w, "invoke")
    /\ IsRefused(w)
    /\ LET isRecorded == memory[w].entity.letter \/ Mistake = "refusals leave no trace"
       IN GoOn(w, IF isRecorded THEN "tell" ELSE "store",
               [memory[w] EXCEPT !.refused = TRUE, !.changed.letter = TRUE])
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger, clock>>

Invoke(w) ==
    /\ At(w, "invoke")
    /\ ~IsRefused(w)
    /\ LET owner == IF Mistake = "entries do not know their batch" THEN "single" ELSE batch[w]
           changed == [memory[w].entity EXCEPT !.changes = @ + 1, !.entry = [context |-> clock, batch |-> owner]]
       IN GoOn(w, "store", [memory[w] EXCEPT !.changed = changed])
    /\ clock' = clock + 1
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger>>

(* Write state and entry together, or the letter, if nobody wrote since the load, else begin again. *)
Store(w) ==
    /\ At(w, "store")
    /\ IF entity.version = memory[w].entity.version \/ Mistake = "no CAS"
       THEN LET stored == [memory[w].changed EXCEPT !.version = entity.version + 1]
                next == IF Mistake = "finish in the first pass" THEN "finish early" ELSE "tell"
            IN /\ entity' = stored
               /\ commits' = IF memory[w].refused THEN commits ELSE commits + 1
               /\ GoOn(w, next, [memory[w] EXCEPT !.entity = stored, !.changed = stored])
       ELSE GoOn(w, "load", Nothing) /\ UNCHANGED <<entity, commits>>
    /\ UNCHANGED <<known, told, folder, ledger, clock>>

(* A mistake: nothing is left in the entity for the attempt after this one. *)
FinishEarly(w) ==
    /\ At(w, "finish early")
    /\ known' = TRUE
    /\ entity' = [entity EXCEPT !.entry = Absent, !.version = @ + 1]
    /\ GoOn(w, "tell", memory[w])
    /\ UNCHANGED <<commits, told, folder, ledger, clock>>

(* What this attempt says of the message. *)
Outcome(w) ==
    LET entry == memory[w].changed.entry
    IN [status |-> CASE memory[w].refused -> "dead_letter"
                     [] entry.batch = batch[w] -> "processed"
                     [] OTHER -> "duplicate",
        outputs |-> IF entry = Absent THEN {} ELSE {entry.context}]

Tell(w) ==
    /\ At(w, "tell")
    /\ told' = [told EXCEPT ![batch[w]] = @ \union {Outcome(w).status}]
    /\ GoOn(w, "put in place", memory[w])
    /\ UNCHANGED <<commits, entity, known, folder, ledger, clock>>

(* Put the outcomes in place, unless another attempt was faster. *)
PutInPlace(w) ==
    /\ At(w, "put in place")
    /\ folder' = IF folder[batch[w]] = NotThere THEN [folder EXCEPT ![batch[w]] = Outcome(w)] ELSE folder
    /\ GoOn(w, "commit", Nothing)
    /\ UNCHANGED <<commits, entity, known, told, ledger, clock>>

Commit(w) ==
    /\ At(w, "commit")
    /\ ledger' = IF ledger[batch[w]] = "started" THEN [ledger EXCEPT ![batch[w]] = "committed"] ELSE ledger
    /\ GoOn(w, "load again", Nothing)
    /\ UNCHANGED <<commits, entity, known, told, folder, clock>>

(* The second pass: finish what is there, unless it belongs to a batch that has not ended. *)
MayFinish(w, entry) ==
    \/ entry.batch \in {batch[w], "single"}
    \/ entry.batch \in Batches /\ ledger[entry.batch] = "published"
    \/ Mistake = "finish what is another's"

LoadAgain(w) ==
    /\ At(w, "load again")
    /\ LET next == IF entity.entry # Absent /\ MayFinish(w, entity.entry) THEN "add" ELSE "publish"
       IN GoOn(w, next, Nothing)
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger, clock>>

Add(w) ==
    /\ At(w, "add")
    /\ known' = TRUE
    /\ GoOn(w, "forget", memory[w])
    /\ UNCHANGED <<commits, entity, told, folder, ledger, clock>>

Forget(w) ==
    /\ At(w, "forget")
    /\ entity' = IF entity.entry # Absent THEN [entity EXCEPT !.entry = Absent, !.version = @ + 1] ELSE entity
    /\ GoOn(w, "publish", memory[w])
    /\ UNCHANGED <<commits, known, told, folder, ledger, clock>>

Publish(w) ==
    /\ At(w, "publish")
    /\ ledger' = [ledger EXCEPT ![batch[w]] = "published"]
    /\ step' = [step EXCEPT ![w] = "idle"]
    /\ batch' = [batch EXCEPT ![w] = Nobody]
    /\ UNCHANGED <<commits, memory, crashes, entity, known, told, folder, clock>>

(* The other message, from somebody else, once. *)
Deposit ==
    /\ Refusing
    /\ ~entity.deposited
    /\ entity' = [entity EXCEPT !.deposited = TRUE, !.version = @ + 1]
    /\ UNCHANGED <<step, batch, memory, crashes, commits, known, told, folder, ledger, clock>>

Crash(w) ==
    /\ ~At(w, "idle")
    /\ crashes > 0
    /\ crashes' = crashes - 1
    /\ step' = [step EXCEPT ![w] = "idle"]
    /\ batch' = [batch EXCEPT ![w] = Nobody]
    /\ memory' = [memory EXCEPT ![w] = Nothing]
    /\ UNCHANGED <<commits, entity, known, told, folder, ledger, clock>>

Step(w) ==
    \/ \E b \in Batches : Begin(w, b)
    \/ Load(w)
    \/ Find(w)
    \/ Refuse(w)
    \/ Invoke(w)
    \/ Store(w)
    \/ FinishEarly(w)
    \/ Tell(w)
    \/ PutInPlace(w)
    \/ Commit(w)
    \/ LoadAgain(w)
    \/ Add(w)
    \/ Forget(w)
    \/ Publish(w)

Quiescent == (\A w \in Workers : At(w, "idle")) /\ \A b \in Batches : ledger[b] = "published"

Next ==
    \/ \E w \in Workers : Step(w) \/ Crash(w)
    \/ Deposit
    \/ Quiescent /\ UNCHANGED vars

Spec == Init /\ [][Next]_vars /\ \A w \in Workers : WF_vars(Step(w))

Processed == {b \in Batches : folder[b].status = "processed"}
Published == UNION {folder[b].outputs : b \in Batches}

AtMostOneStateChange == commits <= 1

(* From the commit of the entity on the message is known in at least one place. *)
KnownWithoutAGap == entity.changes > 0 => (entity.entry # Absent \/ known)

NoGhost == Published # {} => entity.changes > 0

NoLost == Quiescent => entity.letter \/ (entity.changes = 1 /\ Published # {})

ConsistentOutput == Cardinality(Published) <= 1

(* A batch that runs again says what it would have said, whatever others did meanwhile. *)
ProcessedOnce == Cardinality(Processed) <= 1 /\ (Quiescent /\ ~entity.letter => Cardinality(Processed) = 1)

NoGarbage == Quiescent => entity.entry = Absent /\ (known \/ entity.letter)

(* What one attempt at a batch refuses, all its attempts refuse. *)
AttemptsAgree == \A b \in Batches : "dead_letter" \in told[b] => told[b] = {"dead_letter"}

(* A message is a letter or has its effect, never both. *)
RefusedOrProcessed == ~(entity.letter /\ commits > 0)

EveryBatchIsPublished == <>[]Quiescent
============================================================================
