"""`gensor_gym/Write-v0`, the environment in which an agent writes a program choice by choice."""
