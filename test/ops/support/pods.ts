import type { Resource } from "./kustomize.ts";

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly args: readonly string[];
  readonly envFrom?: readonly unknown[];
  readonly env?: readonly {
    name: string;
    value?: string;
    valueFrom?: { fieldRef?: { fieldPath: string }; configMapKeyRef?: { key: string; optional?: boolean } };
  }[];
  readonly ports?: readonly { name: string; containerPort: number }[];
  readonly livenessProbe?: { httpGet: { path: string; port: string | number } };
  readonly readinessProbe?: { httpGet: { path: string; port: string | number } };
  readonly lifecycle?: { preStop: { exec: { command: readonly string[] } } };
  readonly resources?: Record<"requests" | "limits", Record<"cpu" | "memory", string>>;
  readonly securityContext?: {
    readonly allowPrivilegeEscalation?: boolean;
    readonly readOnlyRootFilesystem?: boolean;
    readonly privileged?: boolean;
    readonly capabilities?: { readonly add?: readonly string[]; readonly drop?: readonly string[] };
  };
  readonly volumeMounts?: readonly { name: string; mountPath: string; readOnly?: boolean }[];
}

export interface Pod {
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly hostNetwork?: boolean;
  readonly hostPID?: boolean;
  readonly hostIPC?: boolean;
  readonly terminationGracePeriodSeconds?: number;
  readonly securityContext?: {
    readonly runAsNonRoot?: boolean;
    readonly runAsUser?: number;
    readonly seccompProfile?: { readonly type: string };
  };
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly Readonly<Record<string, unknown>>[];
}

interface Spec {
  readonly template?: { readonly spec: Pod };
  readonly jobTemplate?: { readonly spec: Spec };
}

/** The pods a resource makes. */
export function findPod({ spec }: Resource): Pod | undefined {
  const { template, jobTemplate } = (spec ?? {}) as Spec;
  return template?.spec ?? jobTemplate?.spec.template?.spec;
}

/** The files of secrets that a pod is given: those it names, as a volume without a list of them would hold every one. */
export function listSecrets({ volumes = [] }: Pod): readonly string[] {
  return volumes.flatMap(({ secret }) => {
    const { items } = (secret ?? { items: [] }) as { items?: readonly { key: string; path: string }[] };
    if (items === undefined) throw new Error("a pod mounts a whole secret");
    return items.map(({ path }) => path);
  });
}

/** The kinds of volume that the restricted profile allows. */
const VOLUMES = [
  "configMap",
  "csi",
  "downwardAPI",
  "emptyDir",
  "ephemeral",
  "persistentVolumeClaim",
  "projected",
  "secret",
];

/** What pod security "restricted" forbids, and what we ask for beyond it. */
export function podProblems(pod: Pod): string[] {
  const { securityContext: own } = pod;
  const problems: [boolean, string][] = [
    [own?.runAsNonRoot !== true, "may run as root"],
    [own?.runAsUser !== 1000, "does not run as uid 1000"],
    [own?.seccompProfile?.type !== "RuntimeDefault", "has no seccomp profile"],
    [
      pod.hostNetwork === true || pod.hostPID === true || pod.hostIPC === true,
      "shares the host's namespaces",
    ],
    [pod.automountServiceAccountToken !== false, "mounts a token"],
    [pod.serviceAccountName === undefined, "has no service account of its own"],
    [
      (pod.volumes ?? []).some((volume) => !VOLUMES.some((kind) => kind in volume)),
      "mounts a forbidden volume",
    ],
  ];
  const all = [...(pod.initContainers ?? []), ...pod.containers];
  return [...found(problems), ...all.flatMap((one) => containerProblems(one))];
}

function containerProblems({ name, resources, securityContext: own, image }: Container): string[] {
  const problems: [boolean, string][] = [
    [own?.allowPrivilegeEscalation !== false, "may escalate"],
    [own?.privileged === true, "is privileged"],
    [own?.readOnlyRootFilesystem !== true, "may write to its root"],
    [own?.capabilities?.drop?.includes("ALL") !== true, "keeps capabilities"],
    [(own?.capabilities?.add ?? []).length > 0, "adds capabilities"],
    [!resources?.requests.cpu || !resources.requests.memory, "requests no cpu or memory"],
    [!resources?.limits.cpu || !resources.limits.memory, "has no limits"],
    [image.endsWith(":latest"), "runs the tag latest"],
  ];
  return found(problems).map((problem) => `${name} ${problem}`);
}

function found(problems: readonly [boolean, string][]): string[] {
  return problems.filter(([there]) => there).map(([, problem]) => problem);
}
