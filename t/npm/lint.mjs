// Lints an OpenAPI document: node lint.mjs <file>

import { createRequire } from 'node:module'

// The packages are where build.sh has installed them.
const require = createRequire(process.env.NODE_TOOLS + '/')
const { createConfig, lint } = require('@redocly/openapi-core')

const config = await createConfig({ extends: ['recommended'] })
const problems = await lint({ ref: process.argv[2], config })

for (const { severity, ruleId, message, location } of problems) {
  console.log(`${severity} ${ruleId}: ${message} (${location[0]?.pointer})`)
}

process.exitCode = problems.length ? 1 : 0
