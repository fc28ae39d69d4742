import type { Dashboard, Panel } from "./panel.ts";

const datasource = { type: "prometheus", uid: "${datasource}" };

/** The JSON that Grafana reads: two panels beside each other, the installation chosen on top. */
export function grafanaModel({ uid, title, description, panels }: Dashboard): object {
  return {
    uid,
    title,
    description,
    tags: ["sagabox"],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: "30s",
    time: { from: "now-1h", to: "now" },
    timezone: "",
    annotations: { list: [] },
    links: [{ type: "dashboards", title: "sagabox", tags: ["sagabox"], asDropdown: true, keepTime: true }],
    templating: { list: [source, chosen("namespace"), chosen("job")] },
    panels: panels.map(panelModel),
  };
}

const source = { name: "datasource", label: "Prometheus", type: "datasource", query: "prometheus", hide: 0 };

function chosen(label: string): object {
  return {
    name: label,
    label,
    type: "query",
    datasource,
    query: { query: `label_values(sagabox_build_info, ${label})`, refId: label },
    refresh: 2,
    multi: true,
    includeAll: true,
    allValue: ".*",
    current: { text: "All", value: "$__all" },
    sort: 1,
  };
}

function panelModel({ title, description, unit, queries }: Panel, index: number): object {
  return {
    id: index + 1,
    type: "timeseries",
    title,
    description,
    datasource,
    gridPos: { h: 8, w: 12, x: (index % 2) * 12, y: Math.floor(index / 2) * 8 },
    fieldConfig: {
      defaults: { unit, min: 0, custom: { fillOpacity: 10, showPoints: "never" } },
      overrides: [],
    },
    options: {
      legend: { displayMode: "list", placement: "bottom" },
      tooltip: { mode: "multi", sort: "desc" },
    },
    targets: Object.entries(queries).map(([legendFormat, expr], target) => ({
      refId: String.fromCharCode(65 + target),
      datasource,
      expr,
      legendFormat,
      range: true,
    })),
  };
}
