import type { WorkOutcome } from "../../../src/saga/index.ts";
import type { Command, Handling } from "./participants.ts";
import type { World } from "./world.ts";

/** Between sagas and those who carry out their commands: late, twice, in any order, sometimes not at all. */
export class Post {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  send(command: Command): void {
    const world = this.#world;
    if (world.trouble(4)) return world.say(() => `command ${command.id} is lost`);
    this.#carry(command);
    if (world.trouble(8)) this.#carry(command);
  }

  #carry(command: Command): void {
    this.#world.at(this.#world.delay(), () => this.#arrive(command));
  }

  #arrive(command: Command): void {
    const world = this.#world;
    const handling = this.#handling(command.undo);
    const outcome = this.#handled(command, handling);
    world.say(
      () =>
        `command ${command.id} (${command.undo ? "undo" : "do"} ${command.place}) → ${outcome?.kind ?? "duplicate"}`,
    );
    // A person may bring a dead letter back to life, long after.
    if (handling === "give up" && world.trouble(15)) this.#carry(command);
    if (outcome === undefined) return;
    // Who does not remember what was taken back must at least be heard.
    const mustBeHeard = outcome.kind === "done" && world.participantOf(command.place) === "plain";
    if (!mustBeHeard && world.trouble(5)) return world.say(() => `reply to ${command.id} is lost`);
    this.#reply(command, outcome);
    if (world.trouble(8)) this.#reply(command, outcome);
  }

  #reply({ sagaId, id }: Command, outcome: WorkOutcome): void {
    this.#world.tell(sagaId, { kind: "reply", requestId: id, outcome });
  }

  #handling(undo: boolean): Handling {
    const world = this.#world;
    if (world.trouble(undo ? 6 : 8)) return "give up";
    return world.trouble(undo ? 3 : 8) ? "refuse" : "done";
  }

  #handled(command: Command, handling: Handling): WorkOutcome | undefined {
    const { consumer, service } = this.#world;
    const { sagaId, place, undo, epoch } = command;
    const participant = this.#world.participantOf(place);
    if (participant === "ours") return consumer.receive(command, handling);
    return undo
      ? service.undo(sagaId, place, handling, epoch, participant === "keyed")
      : service.do(sagaId, place, handling);
  }
}
