---------------------------- MODULE Deliveries ----------------------------
(* What the specifications share: copies of messages on their way, and workers that take them, crash, and           *)
(* acknowledge. Each step of a worker is one action: between any two of them the others may go on, or the worker      *)
(* may crash. A crash right after a step is also what an answer looks like that was lost after the service did its    *)
(* work: the step took effect, and the worker does not know. The copy that a worker held when it crashed comes again. *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Messages,   \* the messages, as strings
    Workers,    \* the workers
    Copies,     \* how many copies of each message are sent
    Crashes,    \* how many crashes there are at most
    Mistake     \* what is done wrong, "none" in the algorithm as it is

VARIABLES
    inFlight,   \* for each message, how many of its copies wait for a worker
    crashes,    \* how many crashes may still come
    step,       \* for each worker, the step that it takes next
    message,    \* for each worker, the message that it handles
    memory      \* for each worker, what it has read and computed: lost in a crash

deliveries == <<inFlight, crashes, step, message, memory>>

NoMessage == ""

StartDeliveries(nothing) ==
    /\ inFlight = [m \in Messages |-> Copies]
    /\ crashes = Crashes
    /\ step = [w \in Workers |-> "idle"]
    /\ message = [w \in Workers |-> NoMessage]
    /\ memory = [w \in Workers |-> nothing]

At(w, name) == step[w] = name

(* A worker goes on with another step, and remembers something. *)
GoOn(w, next, remembered) ==
    /\ step' = [step EXCEPT ![w] = next]
    /\ memory' = [memory EXCEPT ![w] = remembered]
    /\ UNCHANGED <<inFlight, crashes, message>>

Take(w, m, first) ==
    /\ At(w, "idle")
    /\ inFlight[m] > 0
    /\ inFlight' = [inFlight EXCEPT ![m] = @ - 1]
    /\ step' = [step EXCEPT ![w] = first]
    /\ message' = [message EXCEPT ![w] = m]
    /\ UNCHANGED <<crashes, memory>>

Leave(w, nothing) ==
    /\ step' = [step EXCEPT ![w] = "idle"]
    /\ message' = [message EXCEPT ![w] = NoMessage]
    /\ memory' = [memory EXCEPT ![w] = nothing]

Acknowledge(w, nothing) ==
    /\ At(w, "acknowledge")
    /\ Leave(w, nothing)
    /\ UNCHANGED <<inFlight, crashes>>

Crash(w, nothing) ==
    /\ ~At(w, "idle")
    /\ crashes > 0
    /\ crashes' = crashes - 1
    /\ inFlight' = [inFlight EXCEPT ![message[w]] = @ + 1]
    /\ Leave(w, nothing)

Quiescent ==
    /\ \A m \in Messages : inFlight[m] = 0
    /\ \A w \in Workers : At(w, "idle")

(* How often an element occurs in a sequence. *)
Count(sequence, element) == Cardinality({i \in 1..Len(sequence) : sequence[i] = element})
============================================================================
