/** Quotes a name for a shell if necessary. */
export function quoteForShell(name: string): string {
  return /^[\w.:@-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;
}

/**
 * Returns the options of a suggested command that fill the audit log. The command can be pasted: the shell fills in who
 * acts, also in a container where USER is not set.
 */
export function auditFlags(reason: string): string {
  return `--actor "$(whoami)" --reason ${quoteForShell(reason)}`;
}
