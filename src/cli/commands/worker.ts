import {
  checkEnvironment,
  oneOf,
  readEnvironment,
  workerParts,
  type WorkerPart,
} from "../../options/index.ts";
import { portValue, textValue, UsageError, type Command } from "../command.ts";
import { loadApp } from "../load-app.ts";
import { runApp } from "../run-app.ts";
import { warnUnknownVariables } from "../settings.ts";
import { listenForStop } from "../stop-signals.ts";

export const worker: Command = {
  name: "worker",
  summary: "Run the relay and the consumers of an application.",
  usage: ["worker --app <module> [--parts <list>] [--port <number>] [--host <address>]"],
  details: `The module exports the bus as default or as "bus", or a function that returns it.
With --parts only some parts run: relay, consumers, sagas, upkeep. Each part needs fewer database rights than all of them;
see \`sagabox help roles\`.
Health and metrics are served on port 8000, on this machine only by default.
SIGTERM and SIGINT stop the worker. Running work may finish within the bus's shutdownTimeout, or SAGABOX_SHUTDOWN_TIMEOUT if
the code sets none. A second signal exits immediately.

Examples:
  sagabox worker --app ./app.js
  sagabox worker --app ./app.js --parts relay,consumers`,
  options: {
    app: { type: "string", value: "<module>", help: "File that exports the bus." },
    parts: {
      type: "string",
      value: "<list>",
      help: `Parts to run, separated by commas. Default: ${workerParts.join(",")}.`,
    },
    port: {
      type: "string",
      value: "<number>",
      help: "Port of health and metrics. Default: SAGABOX_PORT or 8000.",
    },
    host: {
      type: "string",
      value: "<address>",
      help: "Address of health and metrics. Default: SAGABOX_HOST or 127.0.0.1.",
    },
  },
  async run(input, io) {
    const app = textValue(input, "app");
    if (app === undefined) throw new UsageError('"sagabox worker" needs --app <module>.');
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox worker" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const port = portValue(input);
    const parts = parseParts(textValue(input, "parts"));
    warnUnknownVariables(io);
    checkEnvironment(io.env);
    const env = readEnvironment(io.env);
    const host = textValue(input, "host") ?? env.host;
    const stop = listenForStop(io.signals, (code) => io.exit(code));
    try {
      const options = {
        port: port ?? env.port ?? 8000,
        ...(host === undefined ? {} : { host }),
        ...(parts === undefined ? {} : { parts }),
        shutdownMs: env.shutdownTimeout ?? 30_000,
      };
      await runApp(() => loadApp(app, io.cwd), options, { stop, io });
      return 0;
    } finally {
      stop.dispose();
    }
  },
};

function parseParts(list: string | undefined): readonly WorkerPart[] | undefined {
  return list?.split(",").map((part) => oneOf("--parts", part.trim(), workerParts));
}
