import { findNearest } from "../options/index.ts";
import { UsageError, type Command } from "./command.ts";

/** In the order of `sagabox help`. Each command is imported on first use, so that the CLI starts fast. */
const loaders: Readonly<Record<string, () => Promise<Command>>> = {
  dev: async () => (await import("./commands/dev.ts")).dev,
  worker: async () => (await import("./commands/worker.ts")).worker,
  migrate: async () => (await import("./commands/migrate.ts")).migrate,
  status: async () => (await import("./commands/status.ts")).status,
  outbox: async () => (await import("./commands/outbox.ts")).outbox,
  inbox: async () => (await import("./commands/inbox.ts")).inbox,
  republish: async () => (await import("./commands/republish.ts")).republish,
  dlq: async () => (await import("./commands/dlq.ts")).dlq,
  saga: async () => (await import("./commands/saga.ts")).saga,
  explain: async () => (await import("./commands/explain.ts")).explain,
  verify: async () => (await import("./commands/verify.ts")).verify,
  doctor: async () => (await import("./commands/doctor.ts")).doctor,
  tune: async () => (await import("./commands/tune.ts")).tune,
  roles: async () => (await import("./commands/roles.ts")).roles,
  audit: async () => (await import("./commands/audit.ts")).audit,
  erase: async () => (await import("./commands/erase.ts")).erase,
  privacy: async () => (await import("./commands/privacy.ts")).privacy,
  topology: async () => (await import("./commands/topology.ts")).topology,
  completion: async () => (await import("./commands/completion.ts")).completion(allCommands),
};

export const commandNames: readonly string[] = Object.keys(loaders);

export function allCommands(): Promise<readonly Command[]> {
  return Promise.all(Object.values(loaders).map((load) => load()));
}

export function loadCommand(name: string): Promise<Command> {
  const load = Object.hasOwn(loaders, name) ? loaders[name] : undefined;
  if (load !== undefined) return load();
  const suggestion = findNearest(name, [...commandNames, "help", "version"]);
  const hint =
    suggestion === undefined ? `Known: ${commandNames.join(", ")}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`There is no command "${name}". ${hint}`);
}
