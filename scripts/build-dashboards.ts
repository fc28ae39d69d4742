// Writes ops/grafana/dashboards from scripts/dashboards. A test fails when they are not up to date.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { dashboardFile, dashboards } from "./dashboards/index.ts";

const folder = join(import.meta.dirname, "../ops/grafana/dashboards");
for (const [name, dashboard] of Object.entries(dashboards))
  writeFileSync(join(folder, name), dashboardFile(dashboard));
