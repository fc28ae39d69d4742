// The dashboards of ops/grafana, written once and typed; scripts/build-dashboards.ts makes Grafana's JSON of them.
import { consumers } from "./consumers.ts";
import { deadLetters } from "./dead-letters.ts";
import { grafanaModel } from "./grafana-model.ts";
import { outbox } from "./outbox.ts";
import type { Dashboard } from "./panel.ts";
import { sagas } from "./sagas.ts";

/** By the name of the file. */
export const dashboards: Readonly<Record<string, Dashboard>> = {
  "saga-outbox.json": outbox,
  "consumers.json": consumers,
  "sagas.json": sagas,
  "dead-letters.json": deadLetters,
};

export function dashboardFile(dashboard: Dashboard): string {
  return `${JSON.stringify(grafanaModel(dashboard), null, 2)}\n`;
}
