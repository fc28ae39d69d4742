import type { WorkOutcome } from "../../../src/saga/index.ts";
import type { Command, Handling } from "./participants.ts";
import type { Simulation } from "./simulation.ts";

/** Between sagas and those who carry out their commands: late, twice, in any order, sometimes not at all. */
export class Network {
  readonly #simulation: Simulation;

  constructor(world: Simulation) {
    this.#simulation = world;
  }

  send(command: Command): void {
    const world = this.#simulation;
    if (world.trouble(4)) return world.log(() => `command ${command.id} is lost`);
    this.#deliverLater(command);
    if (world.trouble(8)) this.#deliverLater(command);
  }

  #deliverLater(command: Command): void {
    this.#simulation.at(this.#simulation.delay(), () => this.#arrive(command));
  }

  #arrive(command: Command): void {
    const world = this.#simulation;
    const handling = this.#chooseHandling(command.undo);
    const outcome = this.#handleCommand(command, handling);
    world.log(
      () =>
        `command ${command.id} (${command.undo ? "undo" : "do"} ${command.place}) → ${outcome?.kind ?? "duplicate"}`,
    );
    // A person may bring a dead letter back to life, long after.
    if (handling === "give up" && world.trouble(15)) this.#deliverLater(command);
    if (outcome === undefined) return;
    // Who does not remember what was taken back must at least be heard.
    const mustBeHeard = outcome.kind === "done" && world.findParticipant(command.place) === "plain";
    if (!mustBeHeard && world.trouble(5)) return world.log(() => `reply to ${command.id} is lost`);
    this.#reply(command, outcome);
    if (world.trouble(8)) this.#reply(command, outcome);
  }

  #reply({ sagaId, id }: Command, outcome: WorkOutcome): void {
    this.#simulation.sendInput(sagaId, { kind: "reply", requestId: id, outcome });
  }

  #chooseHandling(undo: boolean): Handling {
    const world = this.#simulation;
    if (world.trouble(undo ? 6 : 8)) return "give up";
    return world.trouble(undo ? 3 : 8) ? "refuse" : "done";
  }

  #handleCommand(command: Command, handling: Handling): WorkOutcome | undefined {
    const { consumer, service } = this.#simulation;
    const { sagaId, place, undo, epoch } = command;
    const participant = this.#simulation.findParticipant(place);
    if (participant === "ours") return consumer.receive(command, handling);
    return undo
      ? service.undo(sagaId, place, handling, epoch, participant === "keyed")
      : service.do(sagaId, place, handling);
  }
}
